package job_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
)

// The API promises these numbers (docs/design/product.md#limits).
func TestBoundsAreThoseOfTheContract(t *testing.T) {
	const day = 24 * time.Hour
	for name, d := range map[string]struct{ got, want time.Duration }{
		"least executionTimeout": {job.MinExecutionTimeout, 5 * time.Second},
		"most executionTimeout":  {job.MaxExecutionTimeout, 7 * day},
		"least ttl":              {job.MinTTL, 10 * time.Second},
		"most ttl":               {job.MaxTTL, 7 * day},
		"least changed ttl":      {job.MinChangedTTL, time.Second},
		"default wait":           {job.DefaultWait, 90_000 * time.Millisecond},
		"least wait":             {job.MinWait, 1_000 * time.Millisecond},
		"most wait":              {job.MaxWait, 300_000 * time.Millisecond},
	} {
		if d.got != d.want {
			t.Errorf("%s: got %v, want %v", name, d.got, d.want)
		}
	}
	const mb = 1 << 20
	for name, n := range map[string]struct{ got, want int }{
		"body of run":     {job.MaxRunBody, 10 * mb},
		"body of runsync": {job.MaxRunSyncBody, 20 * mb},
		"output":          {job.MaxOutput, 20 * mb},
		"chunk":           {job.MaxChunk, mb},
		"progress":        {job.MaxProgress, 64 << 10},
		"error":           {job.MaxError, 64 << 10},
	} {
		if n.got != n.want {
			t.Errorf("%s: got %d, want %d", name, n.got, n.want)
		}
	}
}

func TestPolicyBoundsAreExact(t *testing.T) {
	tests := map[string]struct {
		least, most time.Duration
		of          func(job.Policy) time.Duration
	}{
		"executionTimeout": {5 * time.Second, 7 * 24 * time.Hour, func(p job.Policy) time.Duration { return p.ExecutionTimeout }},
		"ttl":              {10 * time.Second, 7 * 24 * time.Hour, func(p job.Policy) time.Duration { return p.TTL }},
	}
	for field, tt := range tests {
		submit := func(d time.Duration) (job.Request, error) {
			return job.NewRequest(fmt.Appendf(nil, `{"input":{},"policy":{%q:%d}}`, field, d.Milliseconds()))
		}
		for _, d := range []time.Duration{tt.least, tt.least + time.Millisecond, tt.most - time.Millisecond, tt.most} {
			if r, err := submit(d); err != nil || tt.of(r.Policy) != d {
				t.Errorf("%s %v: got %v, %v, want it taken as it is", field, d, tt.of(r.Policy), err)
			}
		}
		for _, d := range []time.Duration{tt.least - time.Millisecond, tt.most + time.Millisecond} {
			_, err := submit(d)
			want := fmt.Sprintf("policy.%s must be between %d and %d milliseconds, got %d", field, tt.least.Milliseconds(), tt.most.Milliseconds(), d.Milliseconds())
			if !errors.Is(err, job.ErrInvalid) || err.Error() != want {
				t.Errorf("%s %v: got %v, want %q", field, d, err, want)
			}
		}
	}
}

func TestSizesAreExact(t *testing.T) {
	hook := func(n int) string {
		const start = "http://example.com/"
		return `"webhook":"` + start + strings.Repeat("x", n-len(start)) + `"`
	}
	s3 := func(n int) string {
		const start, end = `{"accessId":"`, `"}`
		return `"s3Config":` + start + strings.Repeat("x", n-len(start)-len(end)) + end
	}
	tests := map[string]struct {
		fits, tooLarge string
	}{
		"webhook":  {hook(job.MaxWebhook), hook(job.MaxWebhook + 1)},
		"s3Config": {s3(job.MaxS3Config), s3(job.MaxS3Config + 1)},
	}
	for field, tt := range tests {
		if _, err := job.NewRequest([]byte(`{"input":{},` + tt.fits + `}`)); err != nil {
			t.Errorf("%s at its bound: got %v, want none", field, err)
		}
		_, err := job.NewRequest([]byte(`{"input":{},` + tt.tooLarge + `}`))
		var wrong *job.FieldError
		if !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s one byte over its bound: got %v, want it refused", field, err)
		}
	}
}

func TestIDs(t *testing.T) {
	tests := map[job.ID]bool{
		"a": true, "sync-0199a7f2-5c1e-7d11-8a55-0e7b7d3f1c02": true, "A_b-9": true,
		job.ID(strings.Repeat("x", 128)): true, job.ID(strings.Repeat("x", 129)): false,
		"": false, "a.b": false, "a b": false, "*": false, ">": false, "a/b": false, "é": false, "a\n": false, "%20": false,
	}
	for id, want := range tests {
		if got := id.Valid(); got != want {
			t.Errorf("%q: got %v, want %v", id, got, want)
		}
	}
}
