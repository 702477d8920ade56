package streaming

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

// listener reads one job's stream to its end.
type listener struct {
	job   job.ID
	heard atomic.Int64 // chunks, so far

	mu    sync.Mutex
	said  []said
	end   job.Status
	wrong error
}

func (l *listener) take(chunk json.RawMessage) {
	var element struct {
		Output said `json:"output"`
	}
	err := json.Unmarshal(chunk, &element)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.wrong = err
	}
	l.said = append(l.said, element.Output)
	l.heard.Add(1)
}

func (l *listener) ended(status job.Status, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end, l.wrong = status, err
}

// bySSE follows with the client, as the command line does. It outlasts a server
// that is restarted on a busy machine and answers 503 at first.
func (l *listener) bySSE(ctx context.Context, c *client.Client) {
	s := c.Stream("work", l.job, client.StreamOptions{Patience: program.Soon})
	for chunk, err := range s.All(ctx) {
		if err != nil {
			l.ended("", err)
			return
		}
		l.take(chunk.Data)
	}
	l.ended(s.End().Status, nil)
}

// byPolling asks again and again, at one of the addresses after the other; with
// own it keeps count itself, else the server does.
func (l *listener) byPolling(ctx context.Context, own bool, addresses ...string) {
	cursor := "0"
	for turn := 0; ctx.Err() == nil; turn++ {
		query := "?format=object&wait=5000"
		if own {
			query += "&cursor=" + cursor
		}
		answer, next, err := l.ask(ctx, addresses[turn%len(addresses)]+"/v2/work/stream/"+string(l.job)+query)
		if err != nil {
			pause := time.NewTimer(50 * time.Millisecond) // it is being restarted
			<-pause.C
			continue
		}
		cursor = next
		for _, chunk := range answer.Stream {
			l.take(chunk)
		}
		if answer.Status.Terminal() && len(answer.Stream) == 0 {
			l.ended(answer.Status, nil)
			return
		}
	}
	l.ended("", ctx.Err())
}

type streamAnswer struct {
	Status job.Status        `json:"status"`
	Stream []json.RawMessage `json:"stream"`
}

func (l *listener) ask(ctx context.Context, address string) (answer streamAnswer, cursor string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return answer, "", err
	}
	req.Header.Set("Authorization", "Bearer "+program.AdminKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return answer, "", fmt.Errorf("got %s", resp.Status)
	}
	return answer, resp.Header.Get("X-Stream-Cursor"), json.NewDecoder(resp.Body).Decode(&answer)
}

// failure is why the listener gave up; nil while it listens.
func (l *listener) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wrong
}

// check returns what is wrong with what was heard: of each run the chunks from
// the first on, in order and each once; of the last run all.
func (l *listener) check(lastRun, chunks int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong != nil || l.end != job.Completed {
		return fmt.Errorf("it ended %q, %w", l.end, l.wrong)
	}
	want := said{Run: 0}
	for i, got := range l.said {
		if got.Run > want.Run {
			want = said{Run: got.Run}
		}
		if got != want {
			return fmt.Errorf("chunk %d is %+v, want %+v", i, got, want)
		}
		want.N++
	}
	if want.Run != lastRun || want.N != chunks {
		return fmt.Errorf("the last run heard of is %d with %d chunks, want %d with %d", want.Run, want.N, lastRun, chunks)
	}
	return nil
}

// audience is all who listen.
type audience struct {
	*program.Installation
	mouth     *mouth
	listeners []*listener
	wg        sync.WaitGroup
}

func newAudience(t *testing.T) *audience {
	t.Helper()
	p := program.NewInstallation(t)
	p.Environ = append(p.Environ, "FLIGHTLINE_LIMITS=off")
	return &audience{Installation: p, mouth: newMouth(t)}
}

// port is an address that is free and stays the same over restarts.
func (a *audience) port() string {
	a.T.Helper()
	return testenv.FreePorts(a.T, 1)[0]
}

func (a *audience) api(address string) *program.Process {
	d := a.Start("serve", "api", "--listen", address)
	d.Line(program.Ready)
	return d
}

func (a *audience) speaker(id string, jobs int) *program.Process {
	d := a.Start("worker", "work", "--id", id, "--url", a.mouth.url, "--concurrency", strconv.Itoa(jobs))
	d.Line(program.WorkerReady)
	return d
}

func (a *audience) submitted() job.ID {
	a.T.Helper()
	j, err := a.Client.Run(a.T.Context(), "work", client.Request{Input: map[string]int{}})
	if err != nil {
		a.T.Fatal(err)
	}
	return j.ID
}

func (a *audience) listen(id job.ID, read func(*listener)) {
	l := &listener{job: id}
	a.listeners = append(a.listeners, l)
	a.wg.Go(func() { read(l) })
}

// more waits until everybody has heard n chunks more.
func (a *audience) more(n int64) {
	a.T.Helper()
	before := make([]int64, len(a.listeners))
	for i, l := range a.listeners {
		before[i] = l.heard.Load()
	}
	a.Eventually(fmt.Sprintf("everybody heard %d more chunks", n), func() bool {
		for i, l := range a.listeners {
			if l.heard.Load() < before[i]+n {
				if wrong := l.failure(); wrong != nil {
					a.T.Fatalf("listener %d of job %s gave up: %v", i, l.job, wrong)
				}
				return false
			}
		}
		return true
	})
}

// finish ends the jobs, waits for the listeners and checks what they heard.
func (a *audience) finish(lastRun int) {
	a.T.Helper()
	close(a.mouth.finish)
	a.wg.Wait()
	chunks, wrong := 0, 0
	for i, l := range a.listeners {
		if err := l.check(lastRun, a.mouth.longest[string(l.job)]); err != nil {
			a.T.Errorf("listener %d of job %s: %v", i, l.job, err)
			if wrong++; wrong > 10 {
				a.T.Fatal("and so on")
			}
		}
		chunks += len(l.said)
	}
	a.T.Logf("%d listeners heard %d chunks", len(a.listeners), chunks)
}
