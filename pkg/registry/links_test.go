package registry_test

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/workitem"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	ctx := t.Context()
	pr, a, b := ref(t, "octo/hello#9"), ref(t, "octo/hello#1"), ref(t, "octo/hello#2")
	if got, err := r.PRLinks(ctx, pr); err != nil || len(got) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	link := func(items ...workitem.Ref) bool {
		t.Helper()
		added, err := r.LinkPR(ctx, pr, items...)
		if err != nil {
			t.Fatal(err)
		}
		return added
	}
	if !link(a) || link(a) || !link(a, b) || link(b, a) {
		t.Error("added is wrong somewhere")
	}
	if got, err := r.PRLinks(ctx, pr); err != nil || !slices.Equal(got, []workitem.Ref{a, b}) {
		t.Errorf("%v, %v", got, err)
	}
	added, err := r.LinkSHA(ctx, "GitHub.com", 7, "ABCDEF", a)
	if err != nil || !added {
		t.Fatalf("%t, %v", added, err)
	}
	if got, err := r.SHALinks(ctx, "github.com", 7, "abcdef"); err != nil || !slices.Equal(got, []workitem.Ref{a}) {
		t.Errorf("case is part of the key: %v, %v", got, err)
	}
	for _, other := range []struct {
		host string
		id   int64
		sha  string
	}{{"github.com", 8, "abcdef"}, {"ghe.example.com", 7, "abcdef"}, {"github.com", 7, "abcde0"}} {
		if got, err := r.SHALinks(ctx, other.host, other.id, other.sha); err != nil || len(got) != 0 {
			t.Errorf("%+v: %v, %v", other, got, err)
		}
	}
}

func TestLinkPR_ConcurrentLinksAreAllKept(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	pr := ref(t, "octo/hello#9")
	g, ctx := errgroup.WithContext(t.Context())
	const n = 12
	for i := range n {
		item := ref(t, fmt.Sprintf("octo/hello#%d", i+1))
		g.Go(func() error {
			added, err := r.LinkPR(ctx, pr, item)
			if err == nil && !added {
				return fmt.Errorf("%s was linked already", item)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, err := r.PRLinks(t.Context(), pr); err != nil || len(got) != n {
		t.Errorf("%v, %v", got, err)
	}
}

const host = "github.com"

func canonical(t *testing.T, r *registry.Registry, id int64, owner, repo string) string {
	t.Helper()
	o, n, err := r.Canonical(t.Context(), host, id, owner, repo)
	if err != nil {
		t.Fatal(err)
	}
	return o + "/" + n
}

func resolve(t *testing.T, r *registry.Registry, item string) string {
	t.Helper()
	got, err := r.Resolve(t.Context(), ref(t, item))
	if err != nil {
		t.Fatal(err)
	}
	return got.String()
}

// Every step is asked of the process that saw the ones before, and of one that
// starts only now.
func TestCanonical_RenameTransferAndReuse(t *testing.T) {
	t.Parallel()
	s, warm := setup(t)
	steps := []struct {
		what        string
		id          int64
		owner, repo string
		want        string
	}{
		{"first sight", 1, "Octo", "Hello", "octo/hello"},
		{"again", 1, "octo", "hello", "octo/hello"},
		{"renamed", 1, "octo", "bye", "octo/hello"},
		{"transferred", 1, "acme", "bye", "octo/hello"},
		{"a new repository takes the freed name", 2, "octo", "hello", "octo/hello@2"},
		{"and is renamed", 2, "octo", "third", "octo/hello@2"},
		{"a stranger", 3, "octo", "fourth", "octo/fourth"},
		{"the first one gets its name back", 1, "octo", "hello", "octo/hello"},
	}
	for _, st := range steps {
		if got := canonical(t, warm, st.id, st.owner, st.repo); got != st.want {
			t.Errorf("%s: %s, want %s", st.what, got, st.want)
		}
		if got := canonical(t, open(t, s), st.id, st.owner, st.repo); got != st.want {
			t.Errorf("%s, asked of a new process: %s, want %s", st.what, got, st.want)
		}
	}
	for name, want := range map[string]string{
		"octo/hello#1": "github:octo/hello#1", "octo/bye#1": "github:octo/hello#1", "acme/bye#1": "github:octo/hello#1",
		"octo/third#1": "github:octo/hello@2#1", "octo/unseen#1": "github:octo/unseen#1",
	} {
		if got := resolve(t, warm, name); got != want {
			t.Errorf("a person's %s is %s, want %s", name, got, want)
		}
	}
}

// The new name of a renamed repository leads to it also when the process that
// sees it has known the repository all along.
func TestResolve_NewNameSeenByARunningProcess(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	canonical(t, r, 1, "octo", "hello")
	canonical(t, r, 1, "octo", "renamed")
	if got := resolve(t, r, "octo/renamed#5"); got != "github:octo/hello#5" {
		t.Errorf("resolved to %s", got)
	}
}

func TestCanonical_WithoutARepositoryID(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	canonical(t, r, 1, "octo", "hello")
	canonical(t, r, 1, "octo", "bye")
	if got := canonical(t, r, 0, "Octo", "Bye"); got != "octo/hello" {
		t.Errorf("by name: %s", got)
	}
	if got := canonical(t, r, 0, "octo", "unseen"); got != "octo/unseen" {
		t.Errorf("an unseen name: %s", got)
	}
}

func TestCanonical_ConcurrentFirstSight(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	natstest.Provision(t, s.JS)
	var regs []*registry.Registry
	for range 4 {
		regs = append(regs, open(t, s))
	}
	got := make([]string, 24)
	g, ctx := errgroup.WithContext(t.Context())
	for i := range got {
		g.Go(func() error {
			// Two repositories and one name, seen by four processes at once.
			o, n, err := regs[i%4].Canonical(ctx, host, int64(1+i%2), "octo", "hello")
			got[i] = o + "/" + n
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got[0] == got[1] {
		t.Errorf("two repositories share the name %s", got[0])
	}
	for i := range got {
		if got[i] != got[i%2] {
			t.Errorf("repository %d is %s and %s", 1+i%2, got[i%2], got[i])
		}
	}
}
