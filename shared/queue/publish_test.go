package queue

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// While the write whose answer was lost is in flight, no reader sees it, and
// the server refuses another one: that must not be taken for somebody else's.
func TestAWriteInFlightMayBeTheOneWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	const (
		away     = `{"error":{"code":503,"err_code":10008,"description":"away"}}`
		inFlight = `{"error":{"code":400,"err_code":10164,"description":"in flight"}}`
		taken    = `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"}}`
		stored   = `{"stream":"S","seq":7}`
	)
	tests := map[string]struct {
		answers []string
		want    error
	}{
		"the first answer was lost": {[]string{away, inFlight, stored}, nil},
		"none was":                  {[]string{inFlight}, bus.ErrConflict},
		"somebody else was first":   {[]string{away, taken}, bus.ErrConflict},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			if _, err := s.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S"}); err != nil {
				t.Fatal(err)
			}
			answers := tc.answers
			testenv.Handle(t, s.NC, "stream.that.answers", func(m *nats.Msg) {
				_ = m.Respond([]byte(answers[0]))
				answers = answers[1:]
			})
			seq, err := s.q.bus.Publish(t.Context(), "S", &nats.Msg{Subject: "stream.that.answers", Header: nats.Header{}}, 0)
			if !errors.Is(err, tc.want) || err == nil && seq != 7 {
				t.Errorf("got %d, %v; want %v", seq, err, tc.want)
			}
		})
	}
}
