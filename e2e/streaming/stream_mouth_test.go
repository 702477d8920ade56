package streaming

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// emitEvery is the pause between two chunks of a job.
const emitEvery = 250 * time.Millisecond

// said is what a chunk of these tests says.
type said struct {
	Run int `json:"run"`
	N   int `json:"n"`
}

// mouth is a local server whose handler emits numbered chunks until it is asked
// to end, or its worker is gone.
type mouth struct {
	url    string
	finish chan struct{} // closed: say no more, complete

	mu      sync.Mutex
	runs    map[string]int // of each job, so far
	longest map[string]int // how many chunks the job's last run had
	running atomic.Int64
}

func newMouth(t *testing.T) *mouth {
	t.Helper()
	m := &mouth{finish: make(chan struct{}), runs: map[string]int{}, longest: map[string]int{}}
	web := httptest.NewServer(m)
	t.Cleanup(web.Close)
	m.url = web.URL
	return m
}

func (m *mouth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var document struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&document); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	m.runs[document.ID]++
	run := m.runs[document.ID]
	m.mu.Unlock()
	m.running.Add(1)
	defer m.running.Add(-1)
	w.Header().Set("Content-Type", "application/x-ndjson")
	tick := time.NewTicker(emitEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		_, _ = fmt.Fprintf(w, "{\"run\":%d,\"n\":%d}\n", run, n)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-m.finish:
			m.mu.Lock()
			m.longest[document.ID] = n + 1
			m.mu.Unlock()
			_, _ = fmt.Fprintln(w, `"done"`)
			return
		}
	}
}
