package streams_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// F6: the leader's own read has what was just acknowledged; a direct get, which
// any replica answers, may lack it.
func TestF6TheLeaderReadsWhatWasAcknowledged(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	t.Parallel()
	c := testenv.NewCluster(t)
	if err := streams.Apply(t.Context(), c.JS, streams.Config{Replicas: testenv.Nodes}); err != nil {
		t.Fatal(err)
	}
	var stale atomic.Int64
	s := stream(t, c.JS, streams.Records(0))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			nc := c.Connect(t)
			for i := range 50 {
				subject := streams.RecordSubject(0, "ep", job.ID(fmt.Sprintf("%d-%d", w, i)), 1)
				seq := publish(t.Context(), t, c.JS, after(0, subject, "x"))
				if got := leaderSeq(t, nc, subject); got != seq {
					t.Errorf("%s: the leader has sequence %d, want %d", subject, got, seq)
				}
				if _, err := s.GetLastMsgForSubject(t.Context(), subject); err != nil {
					stale.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d of 200 direct gets came too early", stale.Load())
}

func leaderSeq(t *testing.T, nc *nats.Conn, subject string) uint64 {
	t.Helper()
	answer, err := nc.Request(bus.LeaderGet(streams.Records(0)), fmt.Appendf(nil, `{"last_by_subj":%q}`, subject), within)
	if err != nil {
		t.Errorf("read %s: %v", subject, err)
		return 0
	}
	var got struct {
		Message struct {
			Seq uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		t.Errorf("read %s: %v", subject, err)
	}
	return got.Message.Seq
}
