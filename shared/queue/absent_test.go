package queue

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// lead makes a node the leader of a stream.
func (c *trio) lead(t *testing.T, node int, stream string) {
	t.Helper()
	testenv.Eventually(t, "the node leads "+stream, func() bool {
		if c.StreamLeader(stream) == node {
			return true
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		body, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": c.NodeName(node)}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.NC.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, body)
		return c.StreamLeader(stream) == node
	})
}

// A leader that was left alone answers reads for some seconds. It may lack a job
// that was accepted elsewhere, so nobody may get "no such job".
func TestALeaderLeftAloneDoesNotSayThatThereIsNoJob(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	t.Parallel()
	c := newTrio(t)
	unknown := NewID(job.Async)
	if _, err := c.q.Status(t.Context(), c.e, unknown); !errors.Is(err, job.ErrNotFound) {
		t.Fatalf("got %v of a job that nobody submitted, want %v", err, job.ErrNotFound)
	}
	const alone = 0
	c.lead(t, alone, streams.Jobs(c.e.ID))
	c.lead(t, alone, streams.Records(c.e.Partition))
	for node := range testenv.Nodes {
		if node != alone {
			c.StopNode(node)
		}
	}
	if _, err := c.q.Status(t.Context(), c.e, unknown); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v while no majority is there, want %v", err, bus.ErrUnavailable)
	}
}

func TestAServerThatIsAloneConfirmsNothing(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	commits := testenv.Subscribe(t, s.NC, bus.MsgDelete(">"))
	if _, err := s.q.Status(t.Context(), s.e, NewID(job.Async)); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v, want %v", err, job.ErrNotFound)
	}
	if err := s.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	n, _, err := commits.Pending()
	if err != nil || s.q.bus.Clustered() || n > 0 {
		t.Errorf("clustered: %v, commits: %d, %v; want none", s.q.bus.Clustered(), n, err)
	}
}
