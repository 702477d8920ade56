package streaming

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"flightline/shared/client"
	"flightline/shared/testenv/program"
)

func TestEveryReaderHearsEveryChunkOnceOverARestartAndATakeover(t *testing.T) {
	t.Parallel()
	const readers, jobs = 40, 40
	a := newAudience(t)
	address := a.port()
	served := a.api(address)
	c, err := client.New("http://"+address, program.AdminKey, client.WithPatience(program.Soon))
	if err != nil {
		t.Fatal(err)
	}
	first := a.speaker("first", jobs+1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*program.Soon)
	defer cancel()
	one := a.submitted()
	for i := range readers + jobs {
		id := one
		if i >= readers {
			id = a.submitted()
		}
		if i%3 == 0 {
			a.listen(id, func(l *listener) { l.byPolling(ctx, true, "http://"+address) })
		} else {
			a.listen(id, func(l *listener) { l.bySSE(ctx, c) })
		}
	}
	a.Eventually("all jobs run", func() bool { return a.mouth.running.Load() == jobs+1 })
	a.speaker("second", jobs+1)
	a.more(5)

	served.Kill()
	served = a.api(address)
	a.more(5)

	first.Kill()
	a.Eventually("the other worker runs all jobs again", func() bool {
		a.mouth.mu.Lock()
		defer a.mouth.mu.Unlock()
		for _, runs := range a.mouth.runs {
			if runs < 2 {
				return false
			}
		}
		return true
	})
	a.more(5)
	served.Kill()
	a.api(address)
	a.more(5)
	a.finish(2)
}

// The clients that keep no count, as RunPod's, behind two servers of which one
// is stopped and started again.
func TestPlainReadersHearEveryChunkOnceFromTwoServers(t *testing.T) {
	t.Parallel()
	const jobs = 30
	a := newAudience(t)
	addresses := []string{a.port(), a.port()}
	a.api(addresses[0])
	second := a.api(addresses[1])
	a.speaker("first", jobs)
	ctx, cancel := context.WithTimeout(t.Context(), 3*program.Soon)
	defer cancel()
	for range jobs {
		a.listen(a.submitted(), func(l *listener) { l.byPolling(ctx, false, "http://"+addresses[0], "http://"+addresses[1]) })
	}
	a.more(5)
	second.Stop(program.StopWithin)
	a.more(5)
	a.api(addresses[1])
	a.more(5)
	a.finish(1)
}

func TestStreamOnTheCommandLine(t *testing.T) {
	t.Parallel()
	a := newAudience(t)
	a.speaker("first", 1)
	id := string(a.submitted())
	reading := a.Start("stream", "work", id)
	for n := range 3 {
		if got, want := reading.Line(""), fmt.Sprintf(`{"output":{"run":1,"n":%d}}`, n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	close(a.mouth.finish)
	for range reading.Lines { // until its end
	}
	if err := reading.Cmd.Wait(); err != nil {
		t.Errorf("got %v, want code 0", err)
	}
	if out := a.OK("stream", "work", id, "--from", "1"); !strings.HasPrefix(out, `{"output":{"run":1,"n":1}}`) {
		t.Errorf("from the second on: got %.100s", out)
	}
}
