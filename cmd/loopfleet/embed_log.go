package main

import (
	"fmt"
	"sync/atomic"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// serverLog passes the embedded server's log on: its notices are details to
// us, its warnings and errors are ours.
type serverLog struct {
	log     zerolog.Logger
	problem atomic.Pointer[string]
}

var _ natsd.Logger = (*serverLog)(nil)

// last is the newest problem the server spoke of.
func (l *serverLog) last() string {
	if p := l.problem.Load(); p != nil {
		return *p
	}
	return "it gave no reason"
}

func (l *serverLog) note(s string) string {
	l.problem.Store(&s)
	return s
}

func (l *serverLog) Noticef(f string, v ...any) { l.log.Debug().Msg("nats: " + fmt.Sprintf(f, v...)) }

func (l *serverLog) Warnf(f string, v ...any) {
	l.log.Warn().Msg("nats: " + l.note(fmt.Sprintf(f, v...)))
}

func (l *serverLog) Fatalf(f string, v ...any) {
	l.log.Error().Msg("nats: " + l.note(fmt.Sprintf(f, v...)))
}

func (l *serverLog) Errorf(f string, v ...any) {
	l.log.Error().Msg("nats: " + l.note(fmt.Sprintf(f, v...)))
}

func (l *serverLog) Debugf(f string, v ...any) { l.log.Trace().Msg("nats: " + fmt.Sprintf(f, v...)) }

func (l *serverLog) Tracef(f string, v ...any) { l.log.Trace().Msg("nats: " + fmt.Sprintf(f, v...)) }
