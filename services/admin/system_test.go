package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/storehealth"
	"flightline/shared/testenv"
	"flightline/streams"
)

// installation is a NATS with these endpoints, and an inspector of it.
func installation(t *testing.T, endpoints []endpoint.Endpoint, change func(*admin.InspectorConfig)) (*testenv.Server, *admin.Inspector) {
	t.Helper()
	s := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	for _, e := range endpoints {
		if err := streams.ApplyEndpoint(t.Context(), s.JS, streams.Config{}, e); err != nil {
			t.Fatal(err)
		}
	}
	cfg := admin.InspectorConfig{Endpoints: func(context.Context) ([]endpoint.Endpoint, error) { return endpoints, nil }}
	if change != nil {
		change(&cfg)
	}
	i, err := admin.NewInspector(s.NC, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, i
}

func stateIn(v api.System, check string) string {
	for _, f := range v.Findings {
		if f.Check == check {
			return f.State
		}
	}
	return ""
}

// The queues with the most messages are listed, with what their consumers have before
// them; a text in the name finds the others.
func TestTheSystemHasTheLongestQueues(t *testing.T) {
	t.Parallel()
	var endpoints []endpoint.Endpoint
	for n := range 23 {
		endpoints = append(endpoints, endpoint.Endpoint{ID: fmt.Sprintf("ep%02d", n), Lease: time.Second})
	}
	s, i := installation(t, endpoints, nil)
	for n, messages := range map[int]int{22: 3, 21: 2} {
		for m := range messages {
			if _, err := s.JS.Publish(t.Context(), streams.JobSubject(fmt.Sprintf("ep%02d", n), job.Normal, job.ID(fmt.Sprint("j", m))), nil); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Eventually(t, "the consumer counts what its stream has", func() bool { // a moment behind
			c, err := s.JS.Consumer(t.Context(), streams.Jobs(fmt.Sprintf("ep%02d", n)), streams.Consumer(job.Normal))
			return err == nil && c.CachedInfo().NumPending == uint64(messages)
		})
	}
	v, err := i.System(t.Context(), "JOBS_")
	if err != nil {
		t.Fatal(err)
	}
	if l := v.Streams.List; len(l) != 20 || l[0].Name != "JOBS_ep22" || l[0].Endpoint != "ep22" || l[0].Messages != 3 || l[1].Name != "JOBS_ep21" || v.Streams.Matched != 23 {
		t.Errorf("got %d of %d: %+v, want 20 of 23, the longest first", len(l), v.Streams.Matched, l)
	}
	if c := v.Consumers; len(c.List) != 40 || c.List[0].Stream != "JOBS_ep22" || c.List[0].Name != streams.Consumer(job.Normal) || c.List[0].Pending != 3 || c.Count < 46 {
		t.Errorf("got %d of %d: %+v, want those of the streams that are listed, the longest lag first", len(c.List), c.Count, c.List)
	}
	if state := stateIn(v, "streams"); state != "ok" || v.Findings[len(v.Findings)-1].State != "ok" {
		t.Errorf("got %+v, want all streams as they should be", v.Findings)
	}
	one, err := i.System(t.Context(), "ep00")
	if err != nil || len(one.Streams.List) != 1 || len(one.Consumers.List) != 2 || one.Streams.Count != v.Streams.Count {
		t.Errorf("got %+v, %v, want one queue", one.Streams, err)
	}
	if one.At != v.At {
		t.Errorf("looked at %s and %s, want once within a moment", v.At, one.At)
	}
	all, err := i.System(t.Context(), "")
	if err != nil || len(all.Streams.List) != all.Streams.Count-3 || all.Streams.List[0].Endpoint != "" {
		t.Errorf("got %d of %d, %v, want what endpoints share, and 20 queues", len(all.Streams.List), all.Streams.Count, err)
	}
}

// What is wrong comes first, and what is not known is left out.
func TestTheSystemHasFindings(t *testing.T) {
	t.Parallel()
	e := endpoint.Endpoint{ID: "ep", Lease: time.Second}
	s, i := installation(t, []endpoint.Endpoint{e, {ID: "lost", Lease: time.Second}}, func(cfg *admin.InspectorConfig) {
		cfg.Disk = func(context.Context) (storehealth.Space, error) { return storehealth.Space{Free: 5, Total: 50}, nil }
		cfg.Failed = func() []storehealth.Failure { return []storehealth.Failure{{Stream: "EVENTS", Reason: "no space"}} }
	})
	if err := s.JS.DeleteStream(t.Context(), "JOBS_lost"); err != nil {
		t.Fatal(err)
	}
	if err := s.JS.DeleteConsumer(t.Context(), "JOBS_ep", streams.Consumer(job.LowPriority)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.JS.UpdateStream(t.Context(), func() jetstream.StreamConfig {
		c := streams.JobsConfig(streams.Config{}, "ep")
		c.MaxBytes = 1 << 20
		return c
	}()); err != nil {
		t.Fatal(err)
	}
	v, err := i.System(t.Context(), "JOBS_ep")
	if err != nil {
		t.Fatal(err)
	}
	for check, want := range map[string]string{
		"stream JOBS_lost": "fail", "stream JOBS_ep": "warn", "store of EVENTS": "fail", "consumer " + streams.Consumer(job.LowPriority) + " of JOBS_ep": "fail", "schema": "ok", "storage": "ok", "clock": "ok",
	} {
		if got := stateIn(v, check); got != want {
			t.Errorf("%s: got %q of %+v, want %q", check, got, v.Findings, want)
		}
	}
	if v.Findings[0].State != "fail" || v.Findings[len(v.Findings)-1].State != "ok" {
		t.Errorf("got %+v, want the worst first", v.Findings)
	}
	if st := v.Storage; st.DiskFreeBytes != 5 || st.DiskBytes != 50 || st.LimitBytes != 0 {
		t.Errorf("got %+v, want the disk and no limit", st)
	}
	if l := v.Streams.List; len(l) != 1 || l[0].MaxBytes != 1<<20 || len(v.Consumers.List) != 1 {
		t.Errorf("got %+v with %+v, want one queue with one consumer", l, v.Consumers.List)
	}
}

func TestTheSystemOfABrokenInstallation(t *testing.T) {
	t.Parallel()
	broken := errors.New("no endpoints")
	_, i := installation(t, nil, func(cfg *admin.InspectorConfig) {
		cfg.Endpoints = func(context.Context) ([]endpoint.Endpoint, error) { return nil, broken }
	})
	if _, err := i.System(t.Context(), ""); !errors.Is(err, broken) || !strings.Contains(err.Error(), "look at the streams") {
		t.Errorf("got %v, want what is broken", err)
	}
}

// A queue goes before its endpoint, and one is made or deleted while the rest is listed.
func TestAQueueOfAnEndpointThatChangesIsNotMissing(t *testing.T) {
	t.Parallel()
	stays := endpoint.Endpoint{ID: "stays", Lease: time.Second}
	deleting := endpoint.Endpoint{ID: "deleting", Lease: time.Second, Deleting: true}
	ends := endpoint.Endpoint{ID: "ends", Lease: time.Second}
	begins := endpoint.Endpoint{ID: "begins", Lease: time.Second}
	lists := [][]endpoint.Endpoint{{stays, deleting, ends}, {stays, deleting, begins}}
	s, i := installation(t, []endpoint.Endpoint{stays, begins}, func(cfg *admin.InspectorConfig) {
		cfg.Endpoints = func(context.Context) ([]endpoint.Endpoint, error) {
			list := lists[0]
			if len(lists) > 1 {
				lists = lists[1:]
			}
			return list, nil
		}
	})
	v, err := i.System(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []string{"stream JOBS_deleting", "stream JOBS_ends", "queue JOBS_begins"} {
		if state := stateIn(v, check); state != "" {
			t.Errorf("%s: got %s of %+v, want nothing", check, state, v.Findings)
		}
	}
	if state := stateIn(v, "streams"); state != "ok" {
		t.Errorf("streams: got %s of %+v, want ok", state, v.Findings)
	}
	table, err := registry.OpenTable[endpoint.Endpoint](t.Context(), s.JS, streams.BucketEndpoints)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Put(t.Context(), deleting.ID, deleting); err != nil {
		t.Fatal(err)
	}
	if f := found(doctor(t, s, false), "stream JOBS_deleting"); f.State != admin.OK {
		t.Errorf("the doctor found %+v, want nothing", f)
	}
}
