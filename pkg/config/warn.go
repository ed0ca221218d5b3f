package config

import (
	"fmt"
	"slices"
	"strings"
)

// Warnings lists what is allowed and probably not meant, a sentence each, for
// the start and every reload.
func Warnings(cfg Config) []string {
	var w []string
	add := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }

	hook := cfg.Webhooks.GHWebhook
	if len(hook.Events) > 0 {
		for _, e := range []struct{ name, lost string }{
			{"issues", "a label on an issue starts nothing, and its close ends no session"},
			{"pull_request", "a label on a pull request starts nothing, and its close or merge ends no session"},
		} {
			if !slices.Contains(hook.Events, e.name) {
				add("webhooks.ghWebhook.events lists no %s: by webhook, %s", e.name, e.lost)
			}
		}
	}
	for _, e := range hook.Events {
		if slices.Contains(DefaultEvents, e) {
			continue
		}
		hint := "known are " + strings.Join(slices.Sorted(slices.Values(DefaultEvents)), ", ")
		if best := nearest(e, slices.Clone(DefaultEvents)); best != "" {
			hint = "did you mean " + best + "?"
		}
		add("webhooks.ghWebhook.events: %s is no event that is routed: %s", plain(e), hint)
	}
	if hook.Insecure {
		add("webhooks.ghWebhook.insecure: whoever can connect to %s can start agents", plain(hook.Listen))
	}
	if len(cfg.Routing.AuthorizedUsers) == 0 && cfg.Routing.MinimumPermission == "" {
		add("routing: nobody can start anything: list logins in authorizedUsers, or set minimumPermission")
	}
	if len(cfg.Polling.Sources) > 0 && !cfg.Polling.Enabled {
		add("polling.sources are not polled: polling.enabled is false")
	}
	if cfg.Worker.FenceSeconds == 0 {
		add("worker.fenceSeconds is 0: an agent whose worker is cut off goes on, and another may be started for the same item")
	}
	return w
}
