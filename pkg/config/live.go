package config

import (
	"context"
	"os"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Live is the configuration in force in a process. Its soft keys, which are
// routing and webhooks.ghWebhook.events, change when the file does; all others
// hold until the process is started again. It is safe for concurrent use.
type Live struct {
	mu   sync.Mutex
	cur  Config
	subs []func(Change)
}

// Change is what became of an edit.
type Change struct {
	// Config is in force now.
	Config Config
	// Applied are the keys that changed, Restart those that differ in the file
	// and take a restart; both sorted. Values are never shown.
	Applied, Restart []string
	// Asked says that a person asked for the reload.
	Asked bool
	// Err says why the file cannot be used; nothing has changed then.
	Err error
}

// News reports whether there is anything to tell.
func (c Change) News() bool {
	return c.Asked || c.Err != nil || len(c.Applied) > 0 || len(c.Restart) > 0
}

// NewLive returns a Live that begins with cfg.
func NewLive(cfg Config) *Live { return &Live{cur: cfg} }

// Config is what is in force.
func (l *Live) Config() Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cur
}

// Subscribe calls fn with what is in force, without news, and then after every
// reload, also one that changed nothing, one after another. Fn must not call
// back.
func (l *Live) Subscribe(fn func(Change)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs = append(l.subs, fn)
	fn(Change{Config: l.cur})
}

// Edits is where a Live looks for them.
type Edits struct {
	// Load reads the configuration anew, as at the start.
	Load func() (Config, error)
	// File is the file's path now, "" while there is none.
	File func() string
	// Hangup asks for a reload at once; nil for never.
	Hangup <-chan os.Signal
	// Every is how often the file is looked at; 0 means a second.
	Every time.Duration
}

// Follow reloads when the file has changed and has then been left alone for one
// look, and when asked to, until ctx ends.
func (l *Live) Follow(ctx context.Context, s Edits) {
	if s.Every <= 0 {
		s.Every = time.Second
	}
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	// Also what was edited between the start and here is an edit.
	known := fileState{size: -1}
	last := known
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-s.Hangup:
			asked = true
			known = stateOf(s.File())
			last = known
		case <-tick.C:
			now := stateOf(s.File())
			settled := now == last
			last = now
			if !settled || now == known {
				continue
			}
			known = now
		}
		next, err := s.Load()
		l.Reload(next, err, asked)
	}
}

// Reload puts the soft keys of next in force, or reports err; asked says that a
// person wants to hear of it in any case.
func (l *Live) Reload(next Config, err error, asked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Change{Config: l.cur, Asked: asked, Err: err}
	if err == nil {
		l.cur, c.Applied, c.Restart = merge(l.cur, next)
		c.Config = l.cur
	}
	for _, fn := range l.subs {
		fn(c)
	}
}

// merge takes the soft keys of next into cur.
func merge(cur, next Config) (merged Config, applied, restart []string) {
	merged = cur
	merged.Routing = next.Routing
	merged.Webhooks.GHWebhook.Events = next.Webhooks.GHWebhook.Events
	if _, known := cur.Harnesses[next.Routing.DefaultHarness]; !known {
		// A harness that came with the same edit is found at the next start.
		merged.Routing.DefaultHarness = cur.Routing.DefaultHarness
	}
	return merged, Differing(cur, merged), Differing(merged, next)
}

// Differing lists the keys, dotted and sorted, whose values differ.
func Differing(a, b Config) []string {
	var out []string
	differing("", reflect.ValueOf(a), reflect.ValueOf(b), &out)
	slices.Sort(out)
	return out
}

func differing(key string, a, b reflect.Value, out *[]string) {
	if a.Kind() != reflect.Struct {
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			*out = append(*out, key)
		}
		return
	}
	for i := range a.NumField() {
		differing(join(key, yamlName(a.Type().Field(i))), a.Field(i), b.Field(i), out)
	}
}

// fileState tells one state of a file from another.
type fileState struct {
	mtime int64
	size  int64
	inode uint64
}

func stateOf(path string) fileState {
	if path == "" {
		return fileState{}
	}
	fi, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	p := fileState{mtime: fi.ModTime().UnixNano(), size: fi.Size()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		p.inode = st.Ino
	}
	return p
}
