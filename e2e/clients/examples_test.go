package clients

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"flightline/shared/client"
	"flightline/shared/job"
)

const examples = "../workers"

func TestExamplesRunAsTheyStand(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{"s3_upload.py": true} // below
	for name, test := range map[string]struct {
		in     input
		output string   // part of it
		chunks []string // parts of them
	}{
		"plain.py":            {input{"text": "hello"}, `{"text":"HELLO"}`, nil},
		"generator.py":        {input{"text": "one two"}, `[]`, []string{`"one"`, `"two"`}},
		"aggregate.py":        {input{"to": 2}, `[{"number":0},{"number":1}]`, []string{"0", "1"}},
		"async_concurrent.py": {input{"seconds": 0.1}, `{"slept":0.1}`, nil},
		"chat.py": {
			input{"openai_route": "/v1/chat/completions", "openai_input": input{"model": "parrot", "stream": true, "messages": []any{input{"role": "user", "content": "hello there"}}}},
			`[DONE]`,
			[]string{`data: {`, ` there`, `[DONE]`},
		},
	} {
		tried[name] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, filepath.Join(examples, name))
			b.start("")
			id := b.submit(test.in)
			chunks := b.chunks(id)
			if len(chunks) != len(test.chunks) {
				t.Fatalf("got chunks %v, want %d", chunks, len(test.chunks))
			}
			for i, want := range test.chunks {
				if !strings.Contains(chunks[i], want) {
					t.Errorf("got chunk %s, want %s in it", chunks[i], want)
				}
			}
			if got := compact(b.until(id, job.Completed).Output); !strings.Contains(got, test.output) {
				t.Errorf("got output %s, want %s in it", got, test.output)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(examples, "*.py"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) == "container.py" { // starts one of the others in a container: container_test.go
			continue
		}
		if !tried[filepath.Base(file)] {
			t.Errorf("%s: got no test, want one", file)
		}
	}
}

// bucketServer takes what is put into it. That uploads work against a real S3
// server is shown in e2e/s3.
type bucketServer struct {
	mu   sync.Mutex
	puts map[string]string // body by path
	auth []string
}

func (s *bucketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPut {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts[r.URL.Path] = string(body)
	s.auth = append(s.auth, r.Header.Get("Authorization"))
}

func TestAnExampleUploadsToTheJobsBucketOrTheWorkers(t *testing.T) {
	t.Parallel()
	s3 := &bucketServer{puts: map[string]string{}}
	server := httptest.NewServer(s3)
	defer server.Close()
	b := newBench(t, filepath.Join(examples, "s3_upload.py"))
	b.start("", "BUCKET_ENDPOINT_URL="+server.URL, "BUCKET_ACCESS_KEY_ID=worker-access", "BUCKET_SECRET_ACCESS_KEY=worker-secret")
	for access, lent := range map[string]*client.S3Config{
		"worker-access": nil,
		"job-access":    {AccessID: "job-access", AccessSecret: "job-secret", BucketName: "lent", EndpointURL: server.URL},
	} {
		j, err := b.s.api.Run(t.Context(), b.endpoint, client.Request{Input: input{"text": "content of " + access}, S3: lent})
		if err != nil {
			t.Fatal(err)
		}
		done := b.until(j.ID, job.Completed)
		if !strings.Contains(string(done.Output), string(j.ID)+"/result.txt?") || strings.Contains(string(done.Output), "secret") {
			t.Errorf("got %s, want a signed address under the job's id", done.Output)
		}
		s3.mu.Lock()
		var found bool
		for path, body := range s3.puts {
			found = found || strings.HasSuffix(path, "/"+string(j.ID)+"/result.txt") && strings.Contains(body, "content of "+access)
		}
		if last := s3.auth[len(s3.auth)-1]; !found || !strings.Contains(last, access) {
			t.Errorf("got %v by %q, want the content of job %s by %s", s3.puts, last, j.ID, access)
		}
		s3.mu.Unlock()
	}
}
