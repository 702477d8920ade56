package worker

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/logs"
	"flightline/shared/testenv"
	sdk "flightline/shared/worker"
)

func TestACommandsOutputIsTheJobs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		status job.Status
		output string
		chunks []string
		err    string
	}{
		"the last line":       {`echo '{"n": 1}'`, job.Completed, `{"n":1}`, nil, ""},
		"no output":           {`exit 0`, job.Completed, ``, nil, ""},
		"text":                {`echo hello`, job.Completed, `"hello"`, nil, ""},
		"lines of text":       {`echo; printf '  a \r\n\nb"\n\n'`, job.Completed, `"  a \n\nb\""`, nil, ""},
		"empty lines":         {`echo; echo`, job.Completed, ``, nil, ""},
		"text, then JSON":     {`echo loading; echo 1`, job.Completed, `1`, nil, ""},
		"text of a failure":   {`echo no; exit 1`, job.Failed, ``, nil, "exit status 1"},
		"chunks, then output": {`echo 1; echo loading; echo '"two"'; echo; echo [3]; echo bye`, job.Completed, `[3]`, []string{`1`, `"two"`}, ""},
		"no end of line":      {`printf '1\n2'`, job.Completed, `2`, []string{`1`}, ""},
		"CRLF":                {`printf '1\r\n2\r\n'`, job.Completed, `2`, []string{`1`}, ""},
		"exit code":           {`echo '"dropped"'; exit 3`, job.Failed, ``, nil, "exit status 3"},
		"exit code and why":   {`echo 'no such model' >&2; exit 1`, job.Failed, ``, nil, "exit status 1: no such model"},
		"a signal":            {`kill -9 $$`, job.Failed, ``, nil, "signal: killed"},
		"stdin not read":      {`exec <&-; echo 1`, job.Completed, `1`, nil, ""},
		"a daemon that holds stdout and stderr": {
			`sleep 60 & echo 1`, job.Completed, `1`, nil, "",
		},
		"a daemon that left the group": {`setsid sleep 3 & echo 1`, job.Completed, `1`, nil, ""},
		"latin-1":                      {`printf '"Caf\351"\n"Caf\351"'`, job.Completed, "\"Caf\uFFFD\"", []string{"\"Caf\uFFFD\""}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			s.shell(t, tt.script)
			id := s.submit(t)
			j := s.ended(t, id)
			if j.Status != tt.status || string(j.Output) != tt.output || j.Error != tt.err {
				t.Errorf("got %s %s %q, want %s %s %q", j.Status, j.Output, j.Error, tt.status, tt.output, tt.err)
			}
			if got := s.chunks(t, id); !slices.Equal(got, tt.chunks) {
				t.Errorf("got chunks %q, want %q", got, tt.chunks)
			}
		})
	}
}

// What outlives the command and prints all the time does not hold its job.
func TestADaemonThatPrintsIsNotFollowed(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	dir := t.TempDir()
	s.run(t, Config{Dir: dir, Command: []string{"sh", "-c", `touch on; setsid sh -c 'trap "" PIPE; for i in $(seq 600); do [ -e on ] || exit; echo tick; sleep 0.1; done; touch over' & echo 1`}})
	j := s.ended(t, s.submit(t))
	if _, err := os.Stat(filepath.Join(dir, "over")); err == nil || j.Status != job.Completed || string(j.Output) != "1" {
		t.Errorf("got %s %s %q, and the daemon: %v; want the job completed while that runs", j.Status, j.Output, j.Error, err)
	}
}

func TestACommandGetsTheJobOnStdin(t *testing.T) {
	s := newEnv(t)
	s.shell(t, "cat")
	big := strings.Repeat("x", 1<<20) // more than a pipe holds
	plain := s.submit(t)
	full := s.submit(t, func(r *job.Request) {
		r.Input = json.RawMessage(`{"text":"` + big + `"}`)
		r.Webhook = "http://127.0.0.1/hook"
		r.S3Config = json.RawMessage(`{"bucketName":"b","objectPath":"p"}`)
		r.Policy = job.Policy{ExecutionTimeout: 5 * time.Second, TTL: time.Minute, LowPriority: true}
	})
	for id, want := range map[job.ID]string{
		plain: `{"id":"` + string(plain) + `","input":{"text":"hi"},"policy":{"executionTimeout":600000,"ttl":86400000,"lowPriority":false}}`,
		full: `{"id":"` + string(full) + `","input":{"text":"` + big + `"},"webhook":"http://127.0.0.1/hook",` +
			`"s3Config":{"bucketName":"b","objectPath":"p"},"policy":{"executionTimeout":5000,"ttl":60000,"lowPriority":true}}`,
	} {
		if got := string(s.ended(t, id).Output); got != want {
			t.Errorf("got %.300s, want %.300s", got, want)
		}
	}
}

func TestAChunkIsSentOnceALaterLineShowsThatItIsNotTheLast(t *testing.T) {
	s := newEnv(t)
	dir := t.TempDir()
	s.shell(t, `echo 1; echo 2; while [ ! -e `+dir+`/go ]; do sleep 0.02; done; echo 3`)
	id := s.submit(t)
	testenv.Eventually(t, "the first chunk", func() bool { return slices.Equal(s.chunks(t, id), []string{"1"}) })
	write(t, filepath.Join(dir, "go"))
	if j := s.ended(t, id); string(j.Output) != "3" {
		t.Errorf("got %s, want 3", j.Output)
	}
	if got := s.chunks(t, id); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("got chunks %q, want 1 2", got)
	}
}

func TestLargeOutputs(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	// A line of $2 MB in quotes, after which the command would go on.
	s.shell(t, `n=$(sed 's/.*"text":"\([0-9]*\)".*/\1/'); printf '"'; head -c $n /dev/zero | tr '\0' x; echo '"'; [ $n -lt 20971520 ] || sleep 60`)
	for size, want := range map[int]job.Status{job.MaxOutput - 2: job.Completed, job.MaxOutput + 4096: job.Failed} {
		id := s.submit(t, func(r *job.Request) { r.Input = json.RawMessage(`{"text":"` + strconv.Itoa(size) + `"}`) })
		j := s.ended(t, id)
		if j.Status != want || want == job.Completed && len(j.Output) != size+2 || want == job.Failed && !strings.HasPrefix(j.Error, job.ErrTextOutputTooLarge) {
			t.Errorf("%d bytes: got %s, %d bytes, %q, want %s", size, j.Status, len(j.Output), j.Error, want)
		}
	}
}

func TestTextOfACommandIsBoundedUnlessJSONFollows(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	// 21 MB of text in lines, and what the input says after it.
	s.shell(t, `last=$(sed 's/.*"last":"\([a-z0-9]*\)".*/\1/'); head -c 22020096 /dev/zero | tr '\0' x | fold -w 1000000; echo; echo $last`)
	for last, want := range map[string]job.Status{"1": job.Completed, "end": job.Failed} {
		id := s.submit(t, func(r *job.Request) { r.Input = json.RawMessage(`{"last":"` + last + `"}`) })
		j := s.ended(t, id)
		if j.Status != want || want == job.Completed && string(j.Output) != last || want == job.Failed && !strings.HasPrefix(j.Error, job.ErrTextOutputTooLarge) {
			t.Errorf("text, then %s: got %s, %.80s, %q, want %s", last, j.Status, j.Output, j.Error, want)
		}
	}
}

func TestALongStderrIsCutToItsEnd(t *testing.T) {
	s := newEnv(t)
	s.shell(t, `head -c 300000 /dev/zero | tr '\0' x >&2; echo 'the end' >&2; exit 1`)
	j := s.ended(t, s.submit(t))
	if len(j.Error) > job.MaxError || len(j.Error) < job.MaxError/2 || !strings.HasPrefix(j.Error, "exit status 1: (cut) …x") || !strings.HasSuffix(j.Error, "xthe end") {
		t.Errorf("got %d bytes %.40q … %q", len(j.Error), j.Error, j.Error[max(0, len(j.Error)-20):])
	}
}

// stubborn ignores SIGTERM, as does its child, which holds the output open.
// It prints both process ids.
const stubborn = `trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & echo $! > child; echo $$ > own; echo 1; while :; do sleep 0.1; done`

func TestTheWholeGroupIsKilledAndTheSlotIsFree(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*job.Request)
		end    func(*testing.T, *env, job.ID) // makes the job end
		status job.Status
	}{
		"cancel": {
			func(*job.Request) {},
			func(t *testing.T, s *env, id job.ID) {
				t.Helper()
				if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
					t.Fatal(err)
				}
			},
			job.Cancelled,
		},
		"deadline": {
			func(r *job.Request) { r.Policy.ExecutionTimeout = 2 * time.Second },
			func(*testing.T, *env, job.ID) {},
			job.TimedOut,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			dir := t.TempDir()
			// The second job shows when the slot is free.
			s.run(t, Config{Dir: dir, Command: []string{"sh", "-c", `if [ -e own ]; then echo '"free"'; else ` + stubborn + `; fi`}})
			id := s.submit(t, tt.change)
			testenv.Eventually(t, "the command runs", func() bool { return pid(dir, "own") > 0 })
			own, child := pid(dir, "own"), pid(dir, "child")
			next := s.submit(t)
			tt.end(t, s, id)
			if j := s.ended(t, id); j.Status != tt.status {
				t.Errorf("got %s, want %s", j.Status, tt.status)
			}
			s.ended(t, next)
			for _, p := range []int{own, child} {
				testenv.Eventually(t, "the process is gone", func() bool { return gone(p) })
			}
		})
	}
}

func TestACommandThatHeedsSIGTERMMayCleanUp(t *testing.T) {
	s := newEnv(t)
	dir := t.TempDir()
	s.run(t, Config{Dir: dir, Command: []string{"sh", "-c", `trap 'echo cleaned > cleaned; exit 0' TERM; echo $$ > own; while :; do sleep 0.05; done`}})
	id := s.submit(t)
	testenv.Eventually(t, "the command runs", func() bool { return pid(dir, "own") > 0 })
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it cleaned up", func() bool {
		_, err := os.Stat(filepath.Join(dir, "cleaned"))
		return err == nil
	})
	if j := s.ended(t, id); j.Status != job.Cancelled {
		t.Errorf("got %s, want CANCELLED", j.Status)
	}
}

func TestTheEnvironmentIsTheOneGiven(t *testing.T) {
	s := newEnv(t)
	t.Setenv("SECRET", "hush")
	s.run(t, Config{Env: []string{"MODEL=small", "PATH=/usr/bin:/bin"}, Command: []string{"sh", "-c", `echo "\"$MODEL$SECRET\""`}})
	if j := s.ended(t, s.submit(t)); string(j.Output) != `"small"` {
		t.Errorf("got %s, want small", j.Output)
	}
}

func TestNewRefusesWhatCannotRun(t *testing.T) {
	for name, cfg := range map[string]Config{
		"nothing":       {},
		"both":          {Command: []string{"sh"}, URL: "http://127.0.0.1"},
		"no such file":  {Command: []string{"no-such-command"}},
		"not http":      {URL: "ftp://127.0.0.1"},
		"not a URL":     {URL: "127.0.0.1:80"},
		"a bad address": {URL: "http://[::1"},
	} {
		cfg.Worker = sdk.Config{Endpoint: "ep"}
		if _, err := New(cfg, nil); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
	}
}

func write(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// pid reads a process id from a file; 0 if it is not written yet.
func pid(dir, name string) int {
	text, _ := os.ReadFile(filepath.Join(dir, name))
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// gone reports whether the process has ended; a zombie that its new parent has
// not buried yet has.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// What a command prints besides its results is kept with the job, without its secrets.
func TestWhatACommandPrintsIsKept(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.run(t, Config{
		Command: []string{"sh", "-c", `echo "loading $API_TOKEN" >&2; printf 'no end' >&2; echo text; echo '{"ok":true}'`}, Dir: t.TempDir(),
		Env: []string{"API_TOKEN=secret-of-the-test"},
	})
	id := s.submit(t)
	if j := s.ended(t, id); j.Status != job.Completed {
		t.Fatalf("got %+v", j)
	}
	var got []string
	v, err := logs.NewWatch(t.Context(), s.q.Bus(), logs.Watching{Endpoint: s.e, Job: id, Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for len(got) < 3 {
		some, err := v.Next(t.Context())
		if err != nil || len(some) == 0 {
			t.Fatalf("after %q: %v", got, err)
		}
		for _, l := range some {
			got = append(got, l.Stream+" "+l.Text)
		}
	}
	slices.Sort(got)
	if want := []string{"stderr loading ***", "stderr no end", "stdout text"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
