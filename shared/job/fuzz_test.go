package job_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/job"
)

// Whatever comes, NewRequest refuses it with a *FieldError, or returns a
// request within all bounds that says the same when it is sent again.
func FuzzNewRequest(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `{"input":{}}`, `{"input":null}`, `{"input":{"a":[1,2.5,"x",null,true]}}`,
		`{"input":{},"webhook":"https://example.com/hook"}`, `{"input":{},"webhook":7}`,
		`{"input":{},"policy":{"ttl":10000,"executionTimeout":604800000,"lowPriority":true}}`,
		`{"input":{},"policy":{"ttl":1e309}}`, `{"input":{},"policy":[]}`, `{"input":{},"input":[]}`,
		`{"input":{},"s3Config":{"accessId":"a","accessSecret":"b","bucketName":"c","endpointUrl":"http://d"}}`,
		`{"INPUT":{},"\u0069nput":{}}`, "{\"input\":{\"\xff\":1}}", `{"input":{}}garbage`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		kept := bytes.Clone(body)
		r, err := job.NewRequest(body)
		if !bytes.Equal(body, kept) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			var wrong *job.FieldError
			if !errors.As(err, &wrong) || !errors.Is(err, job.ErrInvalid) || wrong.Problem == "" {
				t.Fatalf("got %T %v, want a *FieldError with a problem", err, err)
			}
			return
		}
		checkRequest(t, r)
		clear(body)
		again, err := job.NewRequest(encode(t, r))
		if err != nil {
			t.Fatalf("sent again: %v", err)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatalf("sent again (-first +second):\n%s", diff)
		}
	})
}

func checkRequest(t *testing.T, r job.Request) {
	t.Helper()
	if !json.Valid(r.Input) || r.Input[0] != '{' {
		t.Errorf("got input %q, want a JSON object", r.Input)
	}
	if r.S3Config != nil && (!json.Valid(r.S3Config) || r.S3Config[0] != '{' || len(r.S3Config) > job.MaxS3Config) {
		t.Errorf("got s3Config %q, want a JSON object within its bound", r.S3Config)
	}
	if len(r.Webhook) > job.MaxWebhook {
		t.Errorf("got a webhook of %d bytes", len(r.Webhook))
	}
	for _, d := range []struct{ got, least, most time.Duration }{
		{r.Policy.TTL, job.MinTTL, job.MaxTTL},
		{r.Policy.ExecutionTimeout, job.MinExecutionTimeout, job.MaxExecutionTimeout},
	} {
		if d.got != 0 && (d.got < d.least || d.got > d.most) {
			t.Errorf("got %v, want 0 or %v to %v", d.got, d.least, d.most)
		}
	}
}

// encode writes a request as a client would.
func encode(t *testing.T, r job.Request) []byte {
	t.Helper()
	policy := map[string]any{"lowPriority": r.Policy.LowPriority}
	if r.Policy.TTL > 0 {
		policy["ttl"] = r.Policy.TTL.Milliseconds()
	}
	if r.Policy.ExecutionTimeout > 0 {
		policy["executionTimeout"] = r.Policy.ExecutionTimeout.Milliseconds()
	}
	hook, err := json.Marshal(r.Webhook)
	if err != nil {
		t.Fatal(err)
	}
	rest, err := json.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	body := append([]byte(`{"input":`), r.Input...)
	body = append(append(body, `,"webhook":`...), hook...)
	body = append(append(body, `,"policy":`...), rest...)
	if r.S3Config != nil {
		body = append(append(body, `,"s3Config":`...), r.S3Config...)
	}
	return append(body, '}')
}

// The walk over the fields finds what encoding/json finds.
func FuzzFields(f *testing.F) {
	for _, seed := range []string{
		`{"input":{},"policy":null}`, ` { "input" : { "a" : [ { "input" : 1 } ] } , "x":"}\"{," } `, `{"inp\u0075t":{"\\":"\""}}`,
		`{"input":{},"a":-1.5e+3,"b":true,"input":{"c":[]}}`, "{\"\":\"\",\"input\":{}\n}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var all map[string]json.RawMessage
		if json.Unmarshal(body, &all) != nil || all == nil {
			return
		}
		r, err := job.NewRequest(body)
		if err == nil && !bytes.Equal(r.Input, all["input"]) {
			t.Errorf("got input %q, want %q", r.Input, all["input"])
		}
		if input := bytes.TrimSpace(all["input"]); len(input) > 0 && input[0] == '{' {
			var wrong *job.FieldError
			if errors.As(err, &wrong) && wrong.Field == "input" {
				t.Errorf("got %v, want the input %q to be found", err, input)
			}
		}
	})
}
