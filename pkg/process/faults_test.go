package process

import (
	"testing"

	"loopfleet/pkg/fault"
)

// rule: LAG-01
func TestInjectFaults_Rejects(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"no duration":   {EnvLag: "soon"},
		"no count":      {EnvKill: "lane-ack"},
		"no number":     {EnvKill: "lane-ack:often"},
		"zeroth pass":   {EnvKill: "lane-ack:0"},
		"unknown point": {EnvKill: "coffee-break:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := InjectFaults(func(k string) string { return env[k] }); err == nil {
				t.Errorf("%v was accepted", env)
			}
		})
	}
}

func TestInjectFaults_NothingAsked(t *testing.T) {
	t.Parallel()
	if err := InjectFaults(func(string) string { return "" }); err != nil {
		t.Error(err)
	}
}

func TestKillAt(t *testing.T) {
	t.Parallel()
	at, nth, err := parseKill("outcome-record:2")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	h := killAt(at, nth, func() { killed++ })
	for _, p := range []fault.Point{fault.OutcomeRecord, fault.LaneAck, fault.LaneAck} {
		h(t.Context(), p)
	}
	if killed != 0 {
		t.Fatal("killed before the second pass")
	}
	h(t.Context(), fault.OutcomeRecord)
	h(t.Context(), fault.OutcomeRecord)
	if killed != 1 {
		t.Errorf("killed %d times, want once", killed)
	}
}
