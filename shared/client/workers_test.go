package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/client"
)

func TestWorkersAreManagedAsTheAPIWantsIt(t *testing.T) {
	const one = `{"id":"w1","endpoint":"ep","running":["j1"],"draining":true,"last4":"abcd","createdAt":"2026-11-21T12:00:00Z","pingIntervalMs":5000,"token":"fw_x"}`
	want := client.Worker{
		ID: "w1", Endpoint: "ep", Running: []string{"j1"}, Draining: true, Last4: "abcd",
		Created: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), PingIntervalMs: 5000, Token: "fw_x",
	}
	tests := map[string]struct {
		call   func(context.Context, client.Workers) (*client.Worker, error)
		answer answer
		sent   request
		want   *client.Worker
	}{
		"create": {
			func(ctx context.Context, w client.Workers) (*client.Worker, error) { return w.Create(ctx, "ep", "w1") },
			ok(one),
			request{Method: "POST", URI: "/v1/endpoints/ep/workers", ContentType: "application/json", Body: `{"id":"w1"}`},
			&want,
		},
		"create, of any id": {
			func(ctx context.Context, w client.Workers) (*client.Worker, error) { return w.Create(ctx, "ep", "") },
			ok(one),
			request{Method: "POST", URI: "/v1/endpoints/ep/workers", ContentType: "application/json", Body: `{}`},
			&want,
		},
		"drain": {
			func(ctx context.Context, w client.Workers) (*client.Worker, error) { return w.Drain(ctx, "ep", "w1") },
			ok(one),
			request{Method: "POST", URI: "/v1/endpoints/ep/workers/w1/drain"},
			&want,
		},
		"revoke": {
			func(ctx context.Context, w client.Workers) (*client.Worker, error) {
				return nil, w.Revoke(ctx, "ep", "w1")
			},
			answer{status: 204},
			request{Method: "DELETE", URI: "/v1/endpoints/ep/workers/w1"},
			nil,
		},
		"list": {func(ctx context.Context, w client.Workers) (*client.Worker, error) {
			list, err := w.List(ctx, "ep")
			if len(list) != 1 {
				return nil, err
			}
			return &list[0], err
		}, ok("[" + one + "]"), request{Method: "GET", URI: "/v1/endpoints/ep/workers"}, &want},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tc.answer)
			got, err := tc.call(t.Context(), s.Workers())
			if err != nil {
				t.Fatal(err)
			}
			tc.sent.Auth = "Bearer secret"
			if diff := cmp.Diff([]request{tc.sent}, s.requests()); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLivingWorkersAreAskedForByTheQuery(t *testing.T) {
	s := serve(t, ok(`{"workers":[{"id":"w1","endpoint":"ep","protocol":"nats","state":"idle","running":[],"host":{"gpus":[{"name":"H100"}],"version":"1.2.3"}}],"cursor":"ep/w1"}`))
	got, err := s.Workers().Living(t.Context(), client.LivingQuery{Endpoint: "ep", ID: "w1", Limit: 1, Cursor: "ep/a"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Cursor != "ep/w1" || len(got.Workers) != 1 || got.Workers[0].Host.GPUs[0].Name != "H100" || got.Workers[0].Host.Version != "1.2.3" {
		t.Errorf("got %+v", got)
	}
	want := []request{{Method: "GET", URI: "/v1/workers?cursor=ep%2Fa&endpoint=ep&id=w1&limit=1", Auth: "Bearer secret"}}
	if diff := cmp.Diff(want, s.requests()); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

func TestEventsOfAllEndpointsNameTheirEndpoint(t *testing.T) {
	c, asked := telling(t, turn{text: begun + "id: 1\nevent: job.failed\ndata: {\"id\":\"e\",\"source\":\"/v2/ep\",\"type\":\"job.failed\",\"subject\":\"j\",\"time\":\"2026-01-31T12:00:00Z\",\"data\":{}}\n\n" + allTold, ends: true})
	for event, err := range c.Events("", client.EventsOptions{Once: true}).All(t.Context()) {
		if err != nil || event.Endpoint != "ep" || event.Job != "j" {
			t.Errorf("got %+v, %v", event, err)
		}
	}
	if got := asked(); len(got) != 1 || got[0] != "/v1/events?follow=false " {
		t.Errorf("asked %q", got)
	}
}
