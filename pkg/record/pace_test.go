package record_test

import (
	"testing"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
)

// Against a plain list of times: nothing older than an hour counts, everything
// younger than 55 minutes does.
func TestPace(t *testing.T) {
	t.Parallel()
	for name, gaps := range map[string][]time.Duration{
		"steady":           {time.Minute, time.Minute, 7 * time.Minute, time.Second},
		"bursts":           {0, 0, 0, 50 * time.Minute, 0, 0, 9 * time.Minute},
		"long pauses":      {3 * time.Hour, time.Second, 61 * time.Minute},
		"clocks that jump": {10 * time.Minute, -3 * time.Minute, time.Minute, 20 * time.Minute, -time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p record.Pace
			var all []time.Time
			now := at(0)
			for i := range 200 {
				now = now.Add(gaps[i%len(gaps)])
				p = p.Add(now)
				all = append(all, now)
				least, most := 0, 0
				const skew = 4 * time.Minute // of the clocks that jump
				for _, a := range all {
					if now.Sub(a) < 55*time.Minute-skew {
						least++
					}
					if now.Sub(a) < time.Hour+skew {
						most++
					}
				}
				if n := p.Count(now); n < least || n > most {
					t.Fatalf("after %d prompts: %d within the hour, want %d to %d", i+1, n, least, most)
				}
			}
			if n := p.Count(now.Add(time.Hour)); n != 0 {
				t.Errorf("%d prompts an hour later", n)
			}
		})
	}
}

// What reached an agent is a prompt, with or without a receipt; a person who
// lets a paused item go on starts the count anew.
func TestPace_OfARecord(t *testing.T) {
	t.Parallel()
	r := armed(t)
	for i, o := range []record.Outcome{
		{Kind: record.Done},
		{Kind: record.Dropped},
		{Kind: record.Dead, Reason: "attempts-spent"},
		{Kind: record.Dead, Reason: record.ReasonNoReceipt},
		{Kind: record.Done},
	} {
		o.Seq, o.At = uint64(i+1), at(i)
		r.Finish(o)
	}
	if n := r.Pace.Count(at(10)); n != 3 {
		t.Errorf("%d prompts counted, want 3", n)
	}
	r.Fold([]record.Control{control(event.Pause, 11, 20)})
	if n := r.Pace.Count(at(20)); n != 3 {
		t.Errorf("%d prompts after the pause, want 3", n)
	}
	r.Fold([]record.Control{control(event.Resume, 12, 21)})
	if n := r.Pace.Count(at(21)); n != 0 {
		t.Errorf("%d prompts after the resume, want none", n)
	}
}
