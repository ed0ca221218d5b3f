package record

import "time"

const (
	// slotTime is how finely prompts are counted.
	slotTime = 5 * time.Minute
	// slots make an hour.
	slots = 12
)

// Pace counts an item's prompts within the last hour, to five minutes: what is
// older than an hour never counts, and what is older than 55 minutes may not. Its
// size does not depend on how many there are.
type Pace struct {
	// Slot is the newest one: the five minutes it is, counted since 1970.
	Slot int64 `json:"slot"`
	// Prompts are the counts of the slots, the newest first.
	Prompts [slots]int `json:"prompts"`
}

func slotOf(t time.Time) int64 { return t.Unix() / int64(slotTime/time.Second) }

// at is the pace as of now. A clock that is behind another's counts into the
// newest slot.
func (p Pace) at(now time.Time) Pace {
	slot := max(slotOf(now), p.Slot)
	next := Pace{Slot: slot}
	if shift := slot - p.Slot; shift < slots {
		copy(next.Prompts[shift:], p.Prompts[:])
	}
	return next
}

// Add counts one prompt.
func (p Pace) Add(now time.Time) Pace {
	p = p.at(now)
	p.Prompts[0]++
	return p
}

// Count is how many there were within the hour before now.
func (p Pace) Count(now time.Time) int {
	n := 0
	for _, c := range p.at(now).Prompts {
		n += c
	}
	return n
}
