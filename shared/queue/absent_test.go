package queue

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"flightline/shared/bus/bustest"
	"flightline/shared/job"
	"flightline/streams"
)

// lead makes a node the leader of a stream.
func (c *trio) lead(t *testing.T, node int, stream string) {
	t.Helper()
	eventually(t, "the node leads "+stream, func() bool {
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
// that was accepted elsewhere, so nobody may be answered that there is none.
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
	for node := range bustest.Nodes {
		if node != alone {
			c.StopNode(node)
		}
	}
	if _, err := c.q.Status(t.Context(), c.e, unknown); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v while no majority is there, want %v", err, ErrUnavailable)
	}
}

func TestAServerThatIsAloneConfirmsNothing(t *testing.T) {
	s := newSite(t)
	if _, err := s.q.Status(t.Context(), s.e, NewID(job.Async)); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v, want %v", err, job.ErrNotFound)
	}
	if s.q.clustered.Load() || len(s.q.commits.groups) > 0 {
		t.Errorf("clustered: %v, commits: %d; want none", s.q.clustered.Load(), len(s.q.commits.groups))
	}
}
