package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/storehealth"
)

// patient stands where the embedded server does: a folder that may take no
// writes, and a server that may not come up.
type patient struct {
	place, folder, start error
	off                  bool // JetStream is switched off
	restarts             [][]string
}

func (p *patient) CheckPlace() error { return p.place }
func (p *patient) JetStream() bool   { return !p.off }
func (p *patient) TestWrite() error  { return cmp.Or(p.place, p.folder) }
func (p *patient) Restart(_ context.Context, streams ...string) error {
	p.restarts = append(p.restarts, streams)
	return p.start
}

func TestTheServerIsRestartedWhenItHelps(t *testing.T) {
	full := []storehealth.Failure{{Stream: "A", Reason: "no space left on device"}, {Stream: "B", Reason: "no space left on device"}}
	for name, test := range map[string]struct {
		failed  []storehealth.Failure
		patient patient
		want    bool
		says    string
	}{
		"all is well":                  {},
		"the folder takes no writes":   {failed: full, patient: patient{folder: errors.New("full")}, says: "takes no writes"},
		"the folder takes them again":  {failed: full, want: true, says: "server restarted"},
		"the folder was removed":       {patient: patient{place: errors.New("removed")}, says: "takes no writes"},
		"JetStream is switched off":    {patient: patient{off: true}, want: true, says: "server restarted"},
		"the server does not come up":  {failed: full, patient: patient{start: errors.New("broken")}, want: true, says: "did not come up, trying again"},
		"it is off, and so the folder": {patient: patient{off: true, folder: errors.New("full")}, says: "takes no writes"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			m := &restarter{
				server: &test.patient, failed: func() []storehealth.Failure { return test.failed }, restarted: func() {},
				log: slog.New(slog.NewTextHandler(&log, nil)),
			}
			m.restart(t.Context(), time.Now())
			if got := len(test.patient.restarts) == 1; got != test.want {
				t.Errorf("got restarts %v, want one: %v", test.patient.restarts, test.want)
			}
			if test.want && test.failed != nil && !slices.Equal(test.patient.restarts[0], []string{"A", "B"}) {
				t.Errorf("got %v, want the streams that refuse writes", test.patient.restarts[0])
			}
			if !strings.Contains(log.String(), test.says) || test.says == "" && log.Len() > 0 {
				t.Errorf("got the log %q, want %q", log.String(), test.says)
			}
		})
	}
}

// A disk that fills at once again does not make it restart all the time, and a
// full one is logged once.
func TestRestartsAreBoundedInRate(t *testing.T) {
	var log bytes.Buffer
	p := &patient{}
	m := &restarter{
		server: p, failed: func() []storehealth.Failure { return []storehealth.Failure{{Stream: "A"}} }, restarted: func() {},
		log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	began := time.Now()
	var at []time.Duration
	for s := range 1800 {
		before := len(p.restarts)
		m.restart(t.Context(), began.Add(time.Duration(s)*time.Second))
		if len(p.restarts) > before {
			at = append(at, time.Duration(s)*time.Second)
		}
	}
	want := []time.Duration{0, 10 * time.Second, 30 * time.Second, 70 * time.Second, 150 * time.Second, 310 * time.Second, 610 * time.Second, 910 * time.Second, 1210 * time.Second, 1510 * time.Second}
	if !slices.Equal(at, want) {
		t.Errorf("got restarts at %v, want %v", at, want)
	}
	later := began.Add(time.Hour)
	m.restart(t.Context(), later)
	if m.pause != minRestartPause {
		t.Errorf("got a pause of %v after a quiet time, want %v", m.pause, minRestartPause)
	}
	p.folder = errors.New("full")
	log.Reset()
	for s := range 60 {
		m.restart(t.Context(), later.Add(minRestartPause+time.Duration(s)*time.Second))
	}
	if got := strings.Count(log.String(), "takes no writes"); got != 1 {
		t.Errorf("got %d lines, want 1", got)
	}
}
