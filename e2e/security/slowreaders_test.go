package security

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"flightline/e2e/require"
	"flightline/shared/testenv/program"
)

// 60 clients with one key ask for an output of 9.9 MB and do not read it. Clients
// with another key are answered meanwhile, and the slow ones end by the least rate.
func TestSlowReadersOfLargeAnswersStallNobody(t *testing.T) {
	t.Parallel()
	const (
		readers, size = 60, 9_900_000
		// maxMemory is the 256 MiB that one key may have of the room, twice 32 MiB that
		// are read at a time, 512 MiB of garbage, and as much again as half of these.
		maxMemory = (256 + 2*32 + 512) << 20 * 3 / 2
	)
	s := program.New(t)
	s.Environ = append(s.Environ, "FLIGHTLINE_API_KEY="+adminKey, "FLIGHTLINE_METRICS_LISTEN=127.0.0.1:0")
	d := s.Start("dev", "--no-demo")
	metrics := d.Line("flightline metrics: ")
	url := d.Line(program.Ready)
	s.Environ = append(s.Environ, "FLIGHTLINE_URL="+url)
	s.OK("endpoint", "create", "echo")
	s.Start("worker", "echo", "--", "cat").Line(program.WorkerReady)
	var slow struct{ Key string }
	program.Decode(t, s.OK("key", "create", "slow", "--scope", "read:echo", "-o", "json"), &slow)
	large, small := completed(t, s, url, input(size)), completed(t, s, url, input(1))
	peak := peakMemory(t, d)

	var conns []net.Conn
	for range readers {
		conns = append(conns, raw(t, strings.TrimPrefix(url, "http://"),
			"GET /v2/echo/status/"+large+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: "+slow.Key+"\r\n\r\n"))
	}
	rounds, slowest := 0, time.Duration(0)
	for late := time.Now().Add(program.Soon); open(conns) > 0; rounds++ {
		if time.Now().After(late) {
			t.Fatalf("%d of %d slow readers still hold a connection", open(conns), readers)
		}
		for _, ask := range []struct {
			method, url, want string
			body              []byte
		}{
			{http.MethodPost, url + "/v2/echo/run", `"IN_QUEUE"`, input(1)},
			{http.MethodPost, url + "/v2/echo/runsync", `"COMPLETED"`, input(1)},
			{http.MethodPost, url + "/v2/echo/runsync", `"COMPLETED"`, input(100_000)},
			{http.MethodGet, url + "/v2/echo/status/" + small, `"COMPLETED"`, nil},
			{http.MethodGet, url + "/v2/echo/status/" + large, `"COMPLETED"`, nil},
			{http.MethodGet, metrics, "flightline_", nil},
		} {
			began := time.Now()
			status, text, err := call(t, 30*time.Second, ask.method, ask.url, adminKey, ask.body)
			slowest = max(slowest, time.Since(began))
			if err != nil || status != http.StatusOK || !strings.Contains(text, ask.want) {
				t.Errorf("%s %s: got %d %.200s, %v after %v, want 200 and %s", ask.method, ask.url, status, text, err, time.Since(began), ask.want)
			}
		}
		if t.Failed() {
			break
		}
	}
	grown := peakMemory(t, d) - peak
	t.Logf("%d rounds, the slowest answer in %v, %d MiB more memory than %d", rounds, slowest, grown>>20, peak>>20)
	if grown > maxMemory {
		t.Errorf("got %d MiB more memory, want at most %d", grown>>20, maxMemory>>20)
	}
	if said := d.Said(); strings.Contains(said, "JetStream is unavailable") {
		t.Errorf("the log has:\n%s", said)
	}
	cut := 0
	for _, conn := range conns {
		if status, whole := rest(conn, size); status == http.StatusOK && !whole {
			cut++
		} else if status != http.StatusServiceUnavailable {
			t.Errorf("a slow reader: got status %d, whole %v, want a part of 200, or 503", status, whole)
		}
	}
	if cut == 0 {
		t.Error("no slow reader was cut off")
	}
}

// completed runs a job and returns its id.
func completed(t *testing.T, s *program.Env, url string, body []byte) (id string) {
	t.Helper()
	_, text, err := call(t, program.Soon, http.MethodPost, url+"/v2/echo/run", adminKey, body)
	var j struct {
		ID string `json:"id"`
	}
	if err != nil || json.Unmarshal([]byte(text), &j) != nil || j.ID == "" {
		t.Fatalf("submit: got %s, %v", text, err)
	}
	s.Eventually("the job is done", func() bool {
		_, text, err = call(t, program.Soon, http.MethodGet, url+"/v2/echo/status/"+j.ID, adminKey, nil)
		return err == nil && strings.Contains(text, `"COMPLETED"`)
	})
	return j.ID
}

// open counts the connections that the server has not closed: it answers a byte
// to a closed one with a reset.
func open(conns []net.Conn) (n int) {
	for _, conn := range conns {
		if _, err := conn.Write([]byte("x")); err == nil {
			n++
		}
	}
	return n
}

// rest reads what is left of an answer, and reports whether it is whole.
func rest(conn net.Conn, size int) (status int, whole bool) {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err == nil && n > int64(size)
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemory is the most memory that the process has had, in bytes.
func peakMemory(t *testing.T, d *program.Process) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Cmd.Process.Pid))
	if err != nil {
		require.Skip(t, "proc", err.Error())
	}
	kb, err := strconv.Atoi(string(peakLine.FindSubmatch(text)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}
