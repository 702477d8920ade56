package ratelimit_test

import (
	"testing"

	"flightline/shared/ratelimit"
)

func TestParseQuota(t *testing.T) {
	tests := map[string]struct{ want, err string }{
		"requests=500":                             {want: "requests=500"},
		"requests=500,concurrent=0,endpoints=3":    {want: "concurrent=0,endpoints=3,requests=500"},
		"endpoints=1000000000":                     {want: "endpoints=1000000000"},
		"endpoints=3,requests=default":             {want: "endpoints=3"},
		"default":                                  {},
		"waitingJobs=9,waitingBytes=1000000000000": {want: "waitingBytes=1000000000000,waitingJobs=9"},
		"waitingBytes=1000000000001":               {err: "quota.waitingBytes must be between 0 and 1000000000000, got 1000000000001"},
		"":                                         {err: `"" must be FIELD=NUMBER, with a field of concurrent, endpoints, requests, waitingBytes, waitingJobs`},
		"requests":                                 {err: `"requests" must be FIELD=NUMBER, with a field of concurrent, endpoints, requests, waitingBytes, waitingJobs`},
		"walks=1":                                  {err: `"walks=1" must be FIELD=NUMBER, with a field of concurrent, endpoints, requests, waitingBytes, waitingJobs`},
		"requests=many":                            {err: `requests must be a whole number or default, got "many"`},
		"requests=1,requests=2":                    {err: "requests is given twice"},
		"requests=-1":                              {err: "quota.requests must be between 0 and 1000000000, got -1"},
		"concurrent=1000000001":                    {err: "quota.concurrent must be between 0 and 1000000000, got 1000000001"},
	}
	for text, want := range tests {
		q, err := ratelimit.ParseQuota(text)
		if want.err != "" {
			if err == nil || err.Error() != want.err {
				t.Errorf("%q: got %v, want %s", text, err, want.err)
			}
			continue
		}
		if err != nil || q.String() != want.want {
			t.Errorf("%q: got %q, %v, want %q", text, q, err, want.want)
		}
	}
}

func TestQuotaChange(t *testing.T) {
	old := ratelimit.Quota{Requests: new(int64(5)), Endpoints: new(int64(2))}
	tests := map[string]struct {
		change    ratelimit.QuotaChange
		want, err string
	}{
		"nothing":         {nil, "endpoints=2,requests=5", ""},
		"another field":   {ratelimit.QuotaChange{"concurrent": new(int64(3))}, "concurrent=3,endpoints=2,requests=5", ""},
		"the same field":  {ratelimit.QuotaChange{"requests": new(int64(0))}, "endpoints=2,requests=0", ""},
		"back to default": {ratelimit.QuotaChange{"requests": nil, "concurrent": nil}, "endpoints=2", ""},
		"unknown":         {ratelimit.QuotaChange{"walks": nil}, "", "quota.walks is unknown: must be of concurrent, endpoints, requests, waitingBytes, waitingJobs"},
		"too little":      {ratelimit.QuotaChange{"endpoints": new(int64(-1))}, "", "quota.endpoints must be between 0 and 1000000000, got -1"},
	}
	for name, test := range tests {
		got, err := test.change.Apply(old)
		if test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("%s: got %v, want %s", name, err, test.err)
			}
			continue
		}
		if err != nil || got.String() != test.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, test.want)
		}
	}
	if old.String() != "endpoints=2,requests=5" {
		t.Errorf("got %q, want the old quota as it was", old)
	}
}

func TestQuotaBounds(t *testing.T) {
	base := ratelimit.Bounds{Requests: 10, Concurrent: 2}
	tests := map[string]struct {
		quota       ratelimit.Quota
		bounds      ratelimit.Bounds
		endpoints   int
		jobs, bytes int64
	}{
		"none":      {ratelimit.Quota{}, base, 2000, 1_000_000, 10 << 30},
		"one field": {ratelimit.Quota{Requests: new(int64(7))}, ratelimit.Bounds{Requests: 7, Concurrent: 2}, 2000, 1_000_000, 10 << 30},
		"no bounds": {ratelimit.Quota{Requests: new(int64(0)), Concurrent: new(int64(0)), Endpoints: new(int64(0)), WaitingJobs: new(int64(0)), WaitingBytes: new(int64(7))}, ratelimit.Bounds{}, 0, 0, 7},
	}
	for name, test := range tests {
		if got := test.quota.Bounds(base); got != test.bounds {
			t.Errorf("%s: got %+v, want %+v", name, got, test.bounds)
		}
		if jobs, bytes := test.quota.MaxWaiting(); jobs != test.jobs || bytes != test.bytes {
			t.Errorf("%s: got %d jobs and %d bytes, want %d and %d", name, jobs, bytes, test.jobs, test.bytes)
		}
		if got := test.quota.MaxEndpoints(); got != test.endpoints {
			t.Errorf("%s: got %d endpoints, want %d", name, got, test.endpoints)
		}
	}
}
