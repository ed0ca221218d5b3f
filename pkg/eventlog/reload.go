package eventlog

import (
	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/logkey"
)

// Reload is the line that tells of an edit of the configuration; news is false
// when there is nothing to tell. It names keys, never values.
func Reload(c config.Change) (e Entry, news bool) {
	switch {
	case !c.News():
		return Entry{}, false
	case c.Err != nil:
		return Entry{Type: event.ConfigRejected, Level: event.Error, Fields: map[string]any{logkey.Error: c.Err.Error()}}, true
	}
	e = Entry{Type: event.ConfigReloaded, Fields: map[string]any{"applied": c.Applied, "needs_restart": c.Restart}}
	if len(c.Restart) > 0 {
		e.Level = event.Warn
	}
	return e, true
}
