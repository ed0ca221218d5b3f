package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/workitem"
)

// A link, once recorded, is durable: a later unlink or a failed look-up must not
// send a pull request's events somewhere else.

// link is the value of one key of the links bucket.
type link struct {
	Items []workitem.Ref `json:"items"`
}

func prKey(pr workitem.Ref) string { return "pr." + pr.Key() }

func shaKey(host string, repoID int64, sha string) string {
	return "sha." + workitem.Escape(strings.ToLower(host)) + "." + strconv.FormatInt(repoID, 10) + "." + workitem.Escape(strings.ToLower(sha))
}

// LinkPR records that a pull request delivers the items, beside those recorded
// before; added is false when it knew them all.
func (r *Registry) LinkPR(ctx context.Context, pr workitem.Ref, items ...workitem.Ref) (added bool, err error) {
	added, err = r.addLink(ctx, prKey(pr), items)
	if err != nil {
		return false, fmt.Errorf("link %s: %w", pr, err)
	}
	return added, nil
}

// LinkSHA records that a head commit belongs to the items.
func (r *Registry) LinkSHA(ctx context.Context, host string, repoID int64, sha string, items ...workitem.Ref) (added bool, err error) {
	added, err = r.addLink(ctx, shaKey(host, repoID, sha), items)
	if err != nil {
		return false, fmt.Errorf("link commit %s: %w", sha, err)
	}
	return added, nil
}

// PRLinks returns the items that a pull request is recorded to deliver.
func (r *Registry) PRLinks(ctx context.Context, pr workitem.Ref) ([]workitem.Ref, error) {
	l, _, err := r.getLink(ctx, prKey(pr))
	if err != nil {
		return nil, fmt.Errorf("read links of %s: %w", pr, err)
	}
	return l.Items, nil
}

// SHALinks returns the items that a head commit is recorded to belong to.
func (r *Registry) SHALinks(ctx context.Context, host string, repoID int64, sha string) ([]workitem.Ref, error) {
	l, _, err := r.getLink(ctx, shaKey(host, repoID, sha))
	if err != nil {
		return nil, fmt.Errorf("read links of commit %s: %w", sha, err)
	}
	return l.Items, nil
}

func (r *Registry) getLink(ctx context.Context, key string) (link, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var l link
	e, err := r.links.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return l, 0, nil
	case err != nil:
		return l, 0, err
	}
	if err := json.Unmarshal(e.Value(), &l); err != nil {
		return l, 0, fmt.Errorf("link %s: %w", key, err)
	}
	return l, e.Revision(), nil
}

func (r *Registry) addLink(ctx context.Context, key string, items []workitem.Ref) (bool, error) {
	for {
		l, rev, err := r.getLink(ctx, key)
		if err != nil {
			return false, err
		}
		had := len(l.Items)
		for _, it := range items {
			if !slices.Contains(l.Items, it) {
				l.Items = append(l.Items, it)
			}
		}
		if len(l.Items) == had {
			return false, nil
		}
		b, err := json.Marshal(l)
		if err != nil {
			return false, err
		}
		if _, err := update(ctx, r.links, key, b, rev); !errors.Is(err, ErrConflict) {
			return err == nil, err
		}
	}
}

// Canonical returns the owner and name that the repository's items are keyed by:
// those it was first seen under, so a rename or a transfer splits nothing. When
// a new repository took the freed name of an older one, the new one's name
// carries its id ("hello@123").
func (r *Registry) Canonical(ctx context.Context, host string, repoID int64, owner, repo string) (string, string, error) {
	name := strings.ToLower(owner) + "/" + strings.ToLower(repo)
	if repoID == 0 {
		return r.byName(ctx, host, name)
	}
	idKey := "id." + workitem.Escape(strings.ToLower(host)) + "." + strconv.FormatInt(repoID, 10)
	seen := repoName{idKey, name} // a renamed repository's new name is to be recorded too
	r.namesMu.RLock()
	known, ok := r.names[seen]
	r.namesMu.RUnlock()
	if !ok {
		var err error
		if known, err = r.firstName(ctx, host, idKey, repoID, name); err != nil {
			return "", "", fmt.Errorf("name of repository %s (%d): %w", name, repoID, err)
		}
		r.namesMu.Lock()
		r.names[seen] = known
		r.namesMu.Unlock()
	}
	owner, repo = cutRepo(known)
	return owner, repo, nil
}

// Resolve returns the item that a reference means today: a person who writes a
// repository's new name means the item kept under its first one.
func (r *Registry) Resolve(ctx context.Context, item workitem.Ref) (workitem.Ref, error) {
	owner, repo, err := r.byName(ctx, item.Host, item.Owner+"/"+item.Repo)
	if err != nil {
		return workitem.Ref{}, fmt.Errorf("resolve %s: %w", item, err)
	}
	return workitem.New(item.Provider, item.Host, owner, repo, item.Number)
}

func cutRepo(name string) (owner, repo string) {
	i := strings.LastIndex(name, "/")
	if i < 0 {
		return "", name
	}
	return name[:i], name[i+1:]
}

func nameKey(host, name string) string {
	owner, repo := cutRepo(name)
	return "name." + workitem.Escape(strings.ToLower(host)) + "." + workitem.Escape(owner) + "." + workitem.Escape(repo)
}

// byName follows a name to its repository's first name.
func (r *Registry) byName(ctx context.Context, host, name string) (string, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	owner, repo := cutRepo(name)
	e, err := r.repos.Get(ctx, nameKey(host, name))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return owner, repo, nil
	case err != nil:
		return "", "", err
	}
	e, err = r.repos.Get(ctx, "id."+workitem.Escape(strings.ToLower(host))+"."+string(e.Value()))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return owner, repo, nil
	case err != nil:
		return "", "", err
	}
	owner, repo = cutRepo(string(e.Value()))
	return owner, repo, nil
}

// firstName reads, or settles now, the name a repository is kept under, and
// lets its present name lead to it.
func (r *Registry) firstName(ctx context.Context, host, idKey string, repoID int64, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id := strconv.FormatInt(repoID, 10)
	holder, err := r.createOrGet(ctx, nameKey(host, name), id)
	if err != nil {
		return "", err
	}
	first := name
	if holder != id {
		first = name + "@" + id
	}
	return r.createOrGet(ctx, idKey, first)
}

// createOrGet writes value unless the key has one, and returns what it has.
func (r *Registry) createOrGet(ctx context.Context, key, value string) (string, error) {
	for {
		e, err := r.repos.Get(ctx, key)
		if err == nil {
			return string(e.Value()), nil
		}
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return "", err
		}
		if _, err := r.repos.Create(ctx, key, []byte(value)); err == nil {
			return value, nil
		} else if !errors.Is(err, jetstream.ErrKeyExists) {
			return "", err
		}
	}
}
