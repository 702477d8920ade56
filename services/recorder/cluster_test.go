package recorder

import (
	"sync"
	"sync/atomic"
	"testing"

	"flightline/shared/testenv"
	"flightline/streams"
)

// A recorder is in the middle of its work when the leader of a stream that it
// reads or writes goes away; all is recorded once all the same.
func TestOnThreeNodesTheLossOfALeaderLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	c := testenv.NewCluster(t)
	s := siteOn(t, &env{NC: c.NC, JS: c.JS, Connect: c.Connect}, testenv.Nodes)
	s.torn = true
	for _, stream := range []string{streams.Events, streams.Records(0)} {
		s.play(t, len(lives))
		var gone atomic.Int64
		gone.Store(-1)
		var once sync.Once
		p := s.recorder(t, "", func(_ *process, at Point) {
			if at == AfterEvents {
				once.Do(func() {
					node := c.StreamLeader(stream)
					c.StopNode(node)
					gone.Store(int64(node))
				})
			}
		})
		testenv.EventuallyNone(t, func() string {
			if gone.Load() < 0 {
				return "not yet"
			}
			return ""
		})
		s.audit(t)
		p.stop()
		c.StartNode(int(gone.Load()))
		testenv.EventuallyNone(t, func() string {
			if _, err := s.q.Counts.Stats(t.Context(), s.e); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	s.recorder(t, "", nil)
	s.play(t, len(lives))
	s.audit(t)
}
