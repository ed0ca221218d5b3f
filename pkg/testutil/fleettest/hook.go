package fleettest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"loopfleet/pkg/ingress"
	"loopfleet/pkg/testutil/githubtest"
)

// Reply is the answer to one webhook.
type Reply struct {
	Status     int
	RetryAfter string
	ingress.Answer
}

// client does as GitHub does: it gives up after ten seconds.
var client = &http.Client{
	Timeout:   10 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 64},
}

// Post sends a signed delivery once.
func Post(ctx context.Context, url string, d githubtest.Delivery) (Reply, error) {
	resp, err := client.Do(githubtest.NewRequest(ctx, url, Secret, d))
	if err != nil {
		return Reply{}, fmt.Errorf("send %s: %w", d.GUID, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return Reply{}, fmt.Errorf("send %s: %w", d.GUID, err)
	}
	r := Reply{Status: resp.StatusCode, RetryAfter: resp.Header.Get("Retry-After")}
	if err := json.Unmarshal(b, &r.Answer); err != nil {
		return r, fmt.Errorf("send %s: answer %d: %w: %.200q", d.GUID, r.Status, err, b)
	}
	return r, nil
}

// ErrRefused says that a delivery will never be accepted.
var ErrRefused = errors.New("the delivery was refused for good")

// Send sends the delivery until it is accepted, each time to what url names
// then, and returns the answer with the number of tries. Only what trying again
// can cure is tried again.
func Send(ctx context.Context, url func() string, d githubtest.Delivery) (Reply, int, error) {
	const retry = 200 * time.Millisecond
	for tries := 1; ; tries++ {
		r, err := Post(ctx, url(), d)
		switch {
		case err == nil && r.Status == http.StatusAccepted:
			return r, tries, nil
		case err == nil && r.Status < http.StatusInternalServerError:
			return r, tries, fmt.Errorf("%w: %s: status %d, %s %s", ErrRefused, d.GUID, r.Status, r.Reason, r.Detail)
		}
		t := time.NewTimer(retry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return r, tries, errors.Join(err, context.Cause(ctx))
		}
	}
}
