package system

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flightline/e2e/chaos/ledger"
)

// httpHandler runs jobs for `flightline worker --url`: many more in a second
// than a command could. Its path names the worker.
type httpHandler struct {
	url  string // without the name of a worker
	book *ledger.File
	runs atomic.Int64
	// mayEnd, if it is not nil, makes the runs of jobs with a tick end at the first
	// tick at which it returns true.
	mayEnd func() bool

	mu    sync.Mutex
	begin map[string]chan struct{} // by worker, closed when its next run begins
}

// serveHandler starts the handler of the workers that start after it. mayEnd may be
// nil.
func (w *world) serveHandler(mayEnd func() bool) error {
	book, err := ledger.Append(w.ledger())
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it returns at once
	if err != nil {
		return fmt.Errorf("serve jobs: %w", err)
	}
	w.jobs = &httpHandler{url: "http://" + l.Addr().String() + "/", book: book, mayEnd: mayEnd, begin: map[string]chan struct{}{}}
	s := &http.Server{Handler: w.jobs, ReadHeaderTimeout: callTimeout}
	w.ends.Go(func() { _ = s.Serve(l) }) // until close
	w.closers = append(w.closers, func() { _ = s.Close() })
	return nil
}

// nextRun is closed when the worker's next run begins.
func (h *httpHandler) nextRun(worker string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begin[worker] == nil {
		h.begin[worker] = make(chan struct{})
	}
	return h.begin[worker]
}

func (h *httpHandler) began(worker string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.begin[worker]; c != nil {
		close(c)
		delete(h.begin, worker)
	}
}

// ServeHTTP runs a job. A run whose worker hangs up has not finished.
func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var j struct {
		ID    string       `json:"id"`
		Input ledger.Input `json:"input"`
	}
	if err := json.NewDecoder(r.Body).Decode(&j); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e := ledger.Entry{
		Kind: ledger.Begin, N: j.Input.N, Job: j.ID, Worker: strings.TrimPrefix(r.URL.Path, "/"),
		Process: int(h.runs.Add(1)), Parent: os.Getpid(),
	}
	if err := h.book.Write(e); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.began(e.Worker)
	for over := false; !over; over = j.Input.Tick == 0 || h.mayEnd == nil || h.mayEnd() {
		if !wait(r.Context(), time.Until(j.Input.Until(time.Now()))) {
			return
		}
	}
	e.Kind = ledger.End
	if err := h.book.Write(e); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintf(w, `{"by":%q}`, e.By()) // a worker that hung up does not hear it
}
