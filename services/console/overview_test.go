package console

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"flightline/shared/api"
	"flightline/shared/client"
	"flightline/shared/registry"
)

// Each GPU is counted once, and a machine without any has no line.
func TestTheOverviewCountsGPUs(t *testing.T) {
	t.Parallel()
	claims, away := []api.GPUClaim{{PodID: "p", Share: 0.5}}, &api.GPUQuarantine{State: "quarantined"}
	d := gpusOf([]client.MachineInventory{
		{ID: "z", Hostname: "b<i>", GPUs: []client.MachineGPU{{Healthy: true, Claims: claims}, {Healthy: true}, {Healthy: true, Claims: claims, Quarantine: away}, {Problem: "fell off the bus"}}},
		{ID: "y"},
		{ID: "a", GPUs: []client.MachineGPU{{Healthy: true}}},
	})
	d.Waiting = []attention{{"ep", "no_gpu", "jobs that wait: 3"}}
	if len(d.Lines) != 2 || d.Lines[0] != (gpuLine{"a", "a", gpuCounts{Total: 1, Free: 1}}) ||
		d.Lines[1] != (gpuLine{"z", "b<i>", gpuCounts{Total: 4, Busy: 1, Free: 1, Quarantined: 1, Unhealthy: 1}}) || d.All.Total != 5 {
		t.Fatalf("got %+v", d)
	}
	s, err := New(Config{Log: slog.New(slog.DiscardHandler)}, Deps{Sessions: &registry.Sessions{}, Actions: &registry.Actions{}, Connect: func(string) (API, error) { return API{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := s.pages.ExecuteTemplate(&page, "overview-gpus", &view{V: &visit{}, D: &overviewData{GPUs: d}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`q=z">b&lt;i&gt;</a> 4 GPUs: 1 busy, 1 free, 1 quarantined, 1 unhealthy<`, `a</a> 1 GPU: 0 busy, 1 free<`, "jobs that wait: 3"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("got %s, want %q", page.String(), want)
		}
	}
	page.Reset()
	if err := s.pages.ExecuteTemplate(&page, "overview-gpus", &view{V: &visit{}, D: &overviewData{}}); err != nil || strings.Contains(page.String(), "GPUs</h2>") {
		t.Errorf("of a key that may not see machines: got %s, %v", page.String(), err)
	}
}

// What waits for a machine is shown of all endpoints, not of the first answer's.
func TestWhatWaitsIsAskedOfAllEndpoints(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"":  `{"endpoints":[{"id":"a","attention":[{"code":"paused","text":"not this"}]},{"id":"b","attention":[]}],"cursor":"b"}`,
		"b": `{"endpoints":[{"id":"z","attention":[{"code":"no_gpu","text":"jobs that wait: 3"}]}]}`,
	}
	c := apiOf(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, answers[r.URL.Query().Get("cursor")])
	})
	var d machinesData
	d.loadWaiting(&visit{ctx: t.Context(), api: c, scopes: scopesOf(t, "read:*")})
	if want := []attention{{"z", "no_gpu", "jobs that wait: 3"}}; !slices.Equal(d.Waiting, want) {
		t.Errorf("got %v, want %v", d.Waiting, want)
	}
}

// scopesOf are those of a key.
func scopesOf(t *testing.T, texts ...string) (scopes []registry.Scope) {
	t.Helper()
	for _, text := range texts {
		scope, err := registry.ParseScope(text)
		if err != nil {
			t.Fatal(err)
		}
		scopes = append(scopes, scope)
	}
	return scopes
}

// apiOf is a client of an API that answers by handle.
func apiOf(t *testing.T, handle http.HandlerFunc, options ...client.Option) *client.Client {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "key", options...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What needs a person is shown of all endpoints: of those on the page as they are, and of the
// others as they were when all were asked for, which an open page does not do each time.
func TestTheOverviewShowsWhatAllEndpointsNeed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	v := &visit{ctx: t.Context(), scopes: scopesOf(t, "read:*"), api: apiOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("attention") == "true" {
			asked.Add(1)
			_, _ = io.WriteString(w, `{"endpoints":[{"id":"b","attention":[{"code":"paused","text":"as it was"}]},{"id":"z","attention":[{"code":"failures","text":"7 of 9"}]}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"endpoints":[{"id":"a"},{"id":"b","attention":[{"code":"paused","text":"as it is"}]}],"cursor":"b"}`)
	})}
	want := []attention{{"b", "paused", "as it is"}, {"z", "failures", "7 of 9"}}
	for range 3 {
		data, err := loadOverview(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := data.(*overviewData); !ok || !slices.Equal(got.Needs, want) {
			t.Errorf("got %+v, want %v", data, want)
		}
		v.before = data
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times about all endpoints, want once", n)
	}
}

// Totals of the endpoints of one page do not pass for those of all.
func TestTheTotalsOfAPageSaySo(t *testing.T) {
	t.Parallel()
	for cursor, want := range map[string]string{"": ">Waiting</span>", "z": ">Waiting, this page</span>"} {
		d := &overviewData{Overview: &client.Overview{Cursor: cursor}}
		if page := renderedBy(t, "overview-totals", &visit{}, d); !strings.Contains(page, want) {
			t.Errorf("with the cursor %q: got %s, want %s", cursor, page, want)
		}
	}
}

func TestManyNeedsAreCounted(t *testing.T) {
	t.Parallel()
	var d overviewData
	for range maxNeeds + 3 {
		d.addNeed(attention{Endpoint: "e", Code: "no_gpu"})
	}
	if len(d.Needs) != maxNeeds || d.MoreNeeds != 3 {
		t.Errorf("got %d and %d more, want %d and 3", len(d.Needs), d.MoreNeeds, maxNeeds)
	}
}

// A page is shown though the other endpoints cannot be asked: what they needed before stays.
func TestTheOverviewDoesNotNeedAllEndpoints(t *testing.T) {
	t.Parallel()
	c := apiOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("attention") == "true" {
			http.Error(w, `{"error":"a queue is away"}`, http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"endpoints":[{"id":"a","attention":[{"code":"paused","text":"as it is"}]}],"cursor":"a"}`)
	})
	before := overviewData{Needy: needy{endpoints: []client.EndpointOverview{{ID: "z", Attention: []api.Attention{{Code: "failures", Text: "7 of 9"}}}}}}
	data, err := loadOverview(&visit{ctx: t.Context(), scopes: scopesOf(t, "read:*"), api: c, before: &before})
	if err != nil {
		t.Fatal(err)
	}
	want := []attention{{"a", "paused", "as it is"}, {"z", "failures", "7 of 9"}}
	if got, ok := data.(*overviewData); !ok || !slices.Equal(got.Needs, want) || got.Needy.Unknown == "" {
		t.Errorf("got %+v, want %v, and why the others are not known", data, want)
	}
}
