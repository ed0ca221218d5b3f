package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
)

func TestRead_Filters(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	other, err := workitem.Parse("octo/hello#43")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	l := newTest(t, js, Options{})
	for i, e := range []Entry{
		{Type: event.WebhookReceived, Delivery: "guid-1"},
		{Type: event.DispatchStarted, WorkItem: item42(t), EventID: "comment-a", Delivery: "guid-1"},
		{Type: event.DispatchFailed, WorkItem: item42(t), EventID: "comment-a"},
		{Type: event.SessionSpawned, WorkItem: other},
		{Type: event.SessionEnded, WorkItem: other},
		{Type: event.DispatchStarted, WorkItem: other, EventID: "comment-b"},
	} {
		e.Fields = map[string]any{"i": i}
		if err := l.Emit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		q    Query
		want string
	}{
		"all":                        {Query{}, "0 1 2 3 4 5"},
		"star":                       {Query{TypeGlob: "*"}, "0 1 2 3 4 5"},
		"one type":                   {Query{TypeGlob: "dispatch.started"}, "1 5"},
		"group":                      {Query{TypeGlob: "dispatch.*"}, "1 2 5"},
		"part of a name":             {Query{TypeGlob: "session.s*"}, "3"},
		"any group":                  {Query{TypeGlob: "*.failed"}, "2"},
		"item":                       {Query{WorkItem: item42(t)}, "1 2"},
		"item and group":             {Query{WorkItem: other, TypeGlob: "session.*"}, "3 4"},
		"event":                      {Query{EventID: "comment-a"}, "1 2"},
		"delivery":                   {Query{Delivery: "guid-1"}, "0 1"},
		"newest":                     {Query{Limit: 2}, "4 5"},
		"newest of a group":          {Query{Limit: 1, TypeGlob: "session.*"}, "4"},
		"limit above":                {Query{Limit: 100, EventID: "comment-a"}, "1 2"},
		"since the start":            {Query{Since: start}, "0 1 2 3 4 5"},
		"since a future time":        {Query{Since: start.Add(time.Hour)}, ""},
		"a type that never occurred": {Query{TypeGlob: "lease.lost"}, ""},
		"nothing of this event":      {Query{EventID: "comment-c"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, l := range readAll(t, js, tc.q) {
				got = append(got, l.text("i"))
			}
			if g := strings.Join(got, " "); g != tc.want {
				t.Errorf("lines %q, want %q", g, tc.want)
			}
		})
	}
}

func TestRead_LeavesNoConsumer(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	l := newTest(t, js, Options{})
	if err := l.Emit(t.Context(), Entry{Type: event.LeaseLost}); err != nil {
		t.Fatal(err)
	}
	readAll(t, js, Query{})
	for name := range stream(t, js).ConsumerNames(t.Context()).Name() {
		t.Errorf("consumer %s is left", name)
	}
}

func TestRead_Errors(t *testing.T) {
	t.Parallel()
	srv, js := setup(t)
	nop := func(Line) error { return nil }
	if err := Read(t.Context(), js, Query{TypeGlob: "dispach.*"}, nop); !errors.Is(err, ErrNoSuchType) {
		t.Errorf("a glob without a match: %v", err)
	}
	for _, glob := range []string{"[", "loop.>", "a b", "dispatch.*.>"} {
		if err := Read(t.Context(), js, Query{TypeGlob: glob}, nop); err == nil {
			t.Errorf("glob %q is no error", glob)
		}
	}
	l := newTest(t, js, Options{})
	if err := l.Emit(t.Context(), Entry{Type: event.LeaseLost}); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	for _, q := range []Query{{}, {Limit: 1}, {Follow: true}} {
		if err := Read(t.Context(), js, q, func(Line) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("%+v: error of the function: %v", q, err)
		}
	}
	if err := srv.JS.DeleteStream(t.Context(), Stream); err != nil {
		t.Fatal(err)
	}
	if err := Read(t.Context(), js, Query{}, nop); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no stream: %v", err)
	}
}

func TestRead_Empty(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	if got := readAll(t, js, Query{}); len(got) != 0 {
		t.Errorf("%d lines in an empty stream", len(got))
	}
}

// The end is what was there at the start, however fast lines come.
func TestRead_EndsUnderLoad(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	l := newTest(t, js, Options{})
	for range 2000 {
		l.Post(Entry{Type: event.DispatchStarted})
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				l.Post(Entry{Type: event.DispatchFailed})
			}
		}
	})
	got := readAll(t, js, Query{TypeGlob: "dispatch.*"})
	close(stop)
	wg.Wait()
	if n := len(got); n < 2000 || got[0].Type != event.DispatchStarted {
		t.Errorf("%d lines", n)
	}
}

// Lines that expire between the start and the reading must not hang the reader.
func TestRead_LinesPurgedMeanwhile(t *testing.T) {
	t.Parallel()
	srv, js := setup(t)
	l := newTest(t, js, Options{})
	for range 2000 {
		l.Post(Entry{Type: event.DispatchStarted})
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	once := sync.OnceValue(func() error { return stream(t, srv.JS).Purge(t.Context()) })
	if err := Read(t.Context(), js, Query{}, func(Line) error { return once() }); err != nil {
		t.Fatal(err)
	}
}

func TestRead_FollowSurvivesRestart(t *testing.T) {
	t.Parallel()
	srv, js := setup(t)
	l := newTest(t, js, Options{})
	emit := func(i int) {
		t.Helper()
		if err := l.Emit(t.Context(), Entry{Type: event.DispatchStarted, Fields: map[string]any{"i": i}}); err != nil {
			t.Fatal(err)
		}
		if err := l.Emit(t.Context(), Entry{Type: event.LeaseLost}); err != nil { // not asked for
			t.Fatal(err)
		}
	}
	emit(0)
	emit(1)
	emit(2)
	var mu sync.Mutex
	var got []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- Read(ctx, js, Query{TypeGlob: "dispatch.*", Follow: true, Limit: 2}, func(l Line) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, l.text("i"))
			return nil
		})
	}()
	seen := func(want string) func() (string, bool) {
		return func() (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			s := strings.Join(got, " ")
			return s, s == want
		}
	}
	waitfor.Value(t, "the newest two", seen("1 2"))
	emit(3)
	waitfor.Value(t, "a new line", seen("1 2 3"))
	srv.Restart(t)
	emit(4)
	waitfor.Value(t, "the line after a restart", seen("1 2 3 4"))
	emit(5)
	waitfor.Value(t, "the line after that", seen("1 2 3 4 5"))
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("follow ended with %v", err)
	}
}

func TestRead_FollowEndsWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	srv, js := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Read(ctx, js, Query{Follow: true}, func(Line) error { return nil }) }()
	waitfor.Until(t, "the reader's consumer", func() bool {
		info, err := stream(t, srv.JS).Info(t.Context())
		return err == nil && info.State.Consumers == 1
	})
	srv.Down()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the reader does not end")
	}
}

func TestRead_WhatIsNoLineIsShown(t *testing.T) {
	t.Parallel()
	srv, js := setup(t)
	for i, data := range []string{"hello\x1b[31m", `{"ts":"2026-03-01T12:00:00Z","type":"a.b","event_id":7}`, ""} {
		if _, err := srv.JS.Publish(t.Context(), fmt.Sprintf("%stest.x%d", Prefix, i), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	got := readAll(t, js, Query{})
	if len(got) != 3 {
		t.Fatalf("%d lines, want 3", len(got))
	}
	var types []string
	for _, l := range got {
		var raw map[string]any
		if err := json.Unmarshal(l.Raw, &raw); err != nil || raw["type"] != string(l.Type) || raw["level"] != "warn" {
			t.Errorf("raw %s: %v", l.Raw, err)
		}
		if l.Level != event.Warn || l.text(logkey.Error) == "" {
			t.Errorf("line %+v", l)
		}
		types = append(types, string(l.Type))
	}
	if !slices.Equal(types, []string{"test.x0", "test.x1", "test.x2"}) {
		t.Errorf("types %q", types)
	}
}

func TestSubjectFilter(t *testing.T) {
	t.Parallel()
	for glob, want := range map[string]string{
		"":                  "loop.log.>",
		"*":                 "loop.log.>",
		"*.failed":          "loop.log.>",
		"dispatch.*":        "loop.log.dispatch.>",
		"dispatch.s*":       "loop.log.dispatch.>",
		"disp*":             "loop.log.>",
		"dispatch.failed":   "loop.log.dispatch.failed",
		"dispatch.faile[d]": "loop.log.dispatch.>",
	} {
		got, err := subjectFilter(glob)
		if err != nil || got != want {
			t.Errorf("subjectFilter(%q) = %q, %v, want %q", glob, got, err, want)
		}
	}
}
