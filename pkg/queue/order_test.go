package queue_test

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"loopfleet/pkg/record"
	"loopfleet/pkg/workitem"
)

// Two workers, fifty items, each told its own events once, in order, never by
// two at once (the ledger sees to the latter two in every test).
func TestLanes_OrderPerItem(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		const items, comments = 50, 3
		r.start("a", 40)
		r.start("b", 40)
		refs := make([]workitem.Ref, items)
		for i := range refs {
			refs[i] = ref(t, i+1)
		}
		var g errgroup.Group
		for part := range 4 {
			g.Go(func() error {
				for c := range comments + 1 {
					for i := part; i < items; i += 4 {
						kind := comment
						if c == 0 {
							kind = label
						}
						if _, err := r.tryPublish(refs[i], kind, fmt.Sprintf("e-%d-%d", i, c)); err != nil {
							return err
						}
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		owners := map[string]int{}
		for i, item := range refs {
			for c := range comments + 1 {
				r.wantOutcome(item, fmt.Sprintf("e-%d-%d", i, c), record.Done, "")
			}
			var want []string
			for c := range comments + 1 {
				want = append(want, fmt.Sprintf("e-%d-%d", i, c))
			}
			if got := r.ledger.of(item); !slices.Equal(got, want) {
				t.Errorf("%s was told %v", item, got)
			}
			owners[r.record(item).Owner]++
		}
		if len(owners) != 2 {
			t.Errorf("owners: %v, want both workers", owners)
		}
		for _, n := range r.nodes {
			if got := n.engine.Claims(); got != 0 {
				t.Errorf("%s still sets room aside for %d items", n.id, got)
			}
		}
	})
}
