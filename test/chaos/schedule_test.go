package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// deed is what is done to a process.
type deed string

const (
	killWorker  deed = "kill worker"
	stopWorker  deed = "stop and continue worker"
	termWorker  deed = "terminate worker"
	killIngress deed = "kill ingress"
	killServer  deed = "kill server"
)

// ordeal is one deed of the schedule.
type ordeal struct {
	at   time.Duration
	deed deed
	// target is which worker or ingress.
	target int
	// away is how long the process is gone or suspended.
	away time.Duration
}

func (o ordeal) String() string {
	return fmt.Sprintf("%7.2fs  %-24s %d, away %.2fs", o.at.Seconds(), o.deed, o.target, o.away.Seconds())
}

// weights are how often each deed comes, of 20.
var weights = []struct {
	deed deed
	n    int
}{{killWorker, 8}, {stopWorker, 3}, {termWorker, 3}, {killIngress, 3}, {killServer, 3}}

// longAway is longer than a lease lives, so that peers take over.
const longAway = 12 * time.Second

// schedule spreads ordeals over a duration. The same seed gives the same one.
func schedule(seed uint64, n, workers, ingresses int, over time.Duration) []ordeal {
	r := rand.New(rand.NewPCG(seed, 1))
	var bag []deed
	for _, w := range weights {
		for range w.n {
			bag = append(bag, w.deed)
		}
	}
	out := make([]ordeal, 0, n)
	for range n {
		o := ordeal{at: between(r, 0, over), deed: bag[r.IntN(len(bag))], away: between(r, 100*time.Millisecond, 3*time.Second)}
		const oneIn = 5
		long := r.IntN(oneIn) == 0
		switch o.deed {
		case killWorker, stopWorker, termWorker:
			o.target = r.IntN(workers)
			if long && o.deed != termWorker {
				o.away += longAway
			}
		case killIngress:
			o.target = r.IntN(ingresses)
		case killServer:
			if long && r.IntN(2) == 0 {
				o.away += longAway
			}
		}
		out = append(out, o)
	}
	slices.SortStableFunc(out, func(a, b ordeal) int { return int(a.at - b.at) })
	return out
}

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

// stepKind is one webhook of an item's life.
type stepKind string

const (
	stepLabel   stepKind = "label"
	stepComment stepKind = "comment"
	stepClose   stepKind = "close"
	stepReopen  stepKind = "reopen"
)

// step is one webhook, with how often it is delivered again.
type step struct {
	kind  stepKind
	pause time.Duration
	// redeliver repeats it under its own delivery id, again under others.
	redeliver, again int
}

// script is what happens to one item, n events in all, spread over a duration.
// Every third item is closed and reopened now and then, and every sixth stays
// closed in the end.
func script(seed uint64, item, n int, over time.Duration) []step {
	r := rand.New(rand.NewPCG(seed, uint64(item)+1000))
	closing, open := item%3 == 2, true
	out := []step{{kind: stepLabel, again: r.IntN(2)}}
	for len(out) < n {
		s := step{kind: stepComment, pause: between(r, 0, 2*over/time.Duration(n))}
		switch p := r.IntN(20); {
		case p == 0 && open:
			s.kind = stepLabel
		case p < 3 && closing && open:
			s.kind, open = stepClose, false
		case p < 9 && closing && !open:
			s.kind, open = stepReopen, true
		}
		if r.IntN(6) == 0 {
			s.redeliver = 1
		}
		if r.IntN(6) == 0 {
			s.again = 1
		}
		out = append(out, s)
	}
	switch stay := item%6 == 5; {
	case stay && open:
		out = append(out, step{kind: stepClose}, step{kind: stepComment})
	case !stay && !open:
		out = append(out, step{kind: stepReopen}, step{kind: stepComment})
	}
	return out
}

func TestSchedule_SeedReproduces(t *testing.T) {
	t.Parallel()
	show := func(seed uint64) string {
		var b strings.Builder
		for _, o := range schedule(seed, 50, 3, 2, time.Minute) {
			fmt.Fprintln(&b, o)
		}
		for i := range 12 {
			fmt.Fprintf(&b, "%+v\n", script(seed, i, 30, time.Minute))
		}
		return b.String()
	}
	if diff := cmp.Diff(show(7), show(7)); diff != "" {
		t.Errorf("one seed, two schedules:\n%s", diff)
	}
	if show(7) == show(8) {
		t.Error("two seeds, one schedule")
	}
}
