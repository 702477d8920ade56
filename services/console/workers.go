package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"flightline/shared/client"
	"flightline/shared/pod"
)

const (
	// workersPage is how many workers a page has.
	workersPage = 100
	// workerJobs is how many jobs of a worker are shown.
	workerJobs = 20
	// linesPast is how old the lines may be that are there when their tail begins.
	linesPast = 15 * time.Minute
)

// workerStates are the states that the filter offers.
var workerStates = []string{"running", "idle", "sleeping", "initializing", "throttled", "unhealthy"}

type workersData struct {
	Endpoint, State string
	States          []string
	Workers         []client.LivingWorker
	Cursor, After   string
	Filtered        bool
}

func loadWorkers(v *visit) (any, error) {
	d := &workersData{Endpoint: v.query.Get("endpoint"), State: v.query.Get("state"), States: workerStates, After: v.query.Get("after")}
	got, err := v.api.Workers().Living(v.ctx, client.LivingQuery{Endpoint: d.Endpoint, Cursor: d.After, Limit: workersPage})
	if err != nil {
		return nil, err
	}
	v.follow(d.Endpoint)
	d.Filtered = d.Endpoint != "" || d.State != ""
	d.Cursor = got.Cursor
	for _, w := range got.Workers {
		if d.State == "" || w.State == d.State || d.State == "draining" && w.Draining {
			d.Workers = append(d.Workers, w)
		}
	}
	return d, nil
}

// gpuNames names the GPUs of a worker's machine, equal ones with their number.
func gpuNames(w client.LivingWorker) string {
	var names []string
	for _, g := range w.Host.GPUs {
		if !slices.Contains(names, g.Name) {
			names = append(names, g.Name)
		}
	}
	for i, name := range names {
		n := 0
		for _, g := range w.Host.GPUs {
			if g.Name == name {
				n++
			}
		}
		if n > 1 {
			names[i] = number(int64(n)) + " × " + name
		}
	}
	return strings.Join(names, ", ")
}

// startupText is what each phase of a start took, and which one goes on; "" without one.
func startupText(s *client.Startup) string {
	if s == nil {
		return ""
	}
	var parts []string
	for _, phase := range pod.AllPhases {
		if took := s.Phases().Took(phase); took > 0 {
			parts = append(parts, string(phase)+" "+millis(took))
		}
	}
	if s.Phase != pod.Ready {
		parts = append(parts, string(s.Phase)+" now")
	}
	return strings.Join(parts, ", ")
}

type workerData struct {
	ID string
	// Worker is nil if it does not live.
	Worker   *client.LivingWorker
	Endpoint string
	Draining bool
	Others   []client.LivingWorker // of the same id, at other endpoints
	Jobs     []client.ListedJob
	listed   time.Time
	Lines    []client.LogLine // the oldest first
}

func loadWorker(v *visit) (any, error) {
	d := &workerData{ID: v.param("worker"), Endpoint: v.query.Get("endpoint")}
	got, err := v.api.Workers().Living(v.ctx, client.LivingQuery{ID: d.ID, Endpoint: d.Endpoint})
	if err != nil {
		return nil, err
	}
	if len(got.Workers) > 0 {
		d.Worker, d.Others = &got.Workers[0], got.Workers[1:]
		d.Endpoint, d.Draining = d.Worker.Endpoint, d.Worker.Draining
	}
	if d.Endpoint == "" {
		return nil, &pageError{status: http.StatusNotFound, text: "No worker of this id lives. Its jobs have its name while they can be read; their pages lead here."}
	}
	v.follow(d.Endpoint)
	if err := d.listJobs(v); err != nil {
		return nil, err
	}
	o := client.LogsOptions{Worker: d.ID, Since: time.Now().Add(-linesPast)}
	d.Lines, err = lastOfTail(v, v.s.lines, tailID{v.apiKey, d.Endpoint, d.ID}, v.api.Logs(d.Endpoint, o).All)
	return d, err
}

// listJobs lists the worker's jobs, for an open page every listInterval: what it prints is
// shown sooner.
func (d *workerData) listJobs(v *visit) error {
	if last := lastLoad[workerData](v); time.Since(last.listed) < listInterval {
		d.Jobs, d.listed = last.Jobs, last.listed
		return nil
	}
	d.listed = time.Now()
	page, err := v.api.Requests(v.ctx, d.Endpoint, client.RequestsOptions{Worker: d.ID, Limit: workerJobs})
	if err != nil {
		return err
	}
	d.Jobs = page.Requests
	return nil
}

func drainWorker(v *visit) (string, error) {
	endpoint, id := v.form.Get("endpoint"), v.param("worker")
	if _, err := v.control.Workers().Drain(v.ctx, endpoint, id); err != nil {
		return "", err
	}
	v.notice("Worker %s takes no more jobs; those that it has go on.", id)
	return Root + "/workers/" + url.PathEscape(id) + "?" + url.Values{"endpoint": {endpoint}}.Encode(), nil
}
