package deliveries

import (
	"testing"
	"time"

	"flightline/shared/testenv"
	"flightline/streams"
)

// A server that stops between an ack and the removal of its message keeps the
// task and delivers it no more. It goes, and no other does.
func TestWhatWasAcknowledgedAsTheServerStoppedIsRemoved(t *testing.T) {
	t.Parallel()
	const all = 5
	for name, test := range map[string]struct {
		open int    // the task that is not acknowledged
		left uint64 // before it is
	}{
		"the newest is open": {all - 1, 1},
		"the oldest is open": {0, all}, // the ack floor stays before it
		"one between is":     {2, all - 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			s.d.leftoverPause = time.Second
			s.many(t, all)
			got := make([]*Task, 0, all)
			from := s.tasks(t)
			for range all {
				got = append(got, nextTask(t, from))
			}
			s.Stop()
			restore := s.SaveMessages(t, streams.Webhooks)
			s.startAgain(t)
			for i, c := range got {
				if i != test.open {
					c.Ack(t.Context())
				}
			}
			s.eventuallyLeft(t, streams.Webhooks, 1)
			s.Stop()
			restore()
			s.startAgain(t)
			if n := s.Messages(t, streams.Webhooks); n < test.left {
				t.Errorf("got %d, want the server to have brought them back", n)
			}
			s.eventuallyLeft(t, streams.Webhooks, test.left)
			if err := got[test.open].Load(t.Context()); err != nil {
				t.Errorf("the open one: got %v, want it to be there", err)
			}
			got[test.open].Ack(t.Context())
			s.eventuallyLeft(t, streams.Webhooks, 0)
		})
	}
}

// startAgain starts a stopped server and waits for the connections of the test.
func (s *env) startAgain(t *testing.T) {
	t.Helper()
	s.Start()
	testenv.Eventually(t, "the server is back", func() bool {
		_, err := s.JS.Stream(t.Context(), streams.Webhooks)
		return err == nil && s.q.Bus().Conn().Flush() == nil && s.q.Bus().Conn().IsConnected()
	})
}

func TestSettled(t *testing.T) {
	t.Parallel()
	made := time.Now()
	at := func(seq uint64) ackFloor { return ackFloor{seq: seq, server: "a", created: made} }
	for name, test := range map[string]struct {
		before, now ackFloor
		want        uint64
	}{
		"the first look":       {ackFloor{}, at(7), 0},
		"it moved on":          {at(3), at(7), 3},
		"nothing moved":        {at(7), at(7), 7},
		"it was set back":      {at(7), at(3), 3}, // delivered again
		"another server":       {at(7), ackFloor{seq: 7, server: "b", created: made}, 0},
		"a consumer made anew": {at(7), ackFloor{seq: 7, server: "a", created: made.Add(time.Second)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := settled(test.before, test.now); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
