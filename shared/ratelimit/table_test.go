package ratelimit_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/ratelimit"
)

func TestDefaultsAreTheContracts(t *testing.T) {
	want := ratelimit.Table{
		"run": {1000, 200}, "runsync": {2000, 400}, "status": {2000, 400}, "stream": {2000, 400},
		"cancel": {100, 20}, "purge-queue": {2, 0}, "openai": {2000, 400}, "requests": {10, 2},
		"retry": {100, 20}, "explain": {100, 20}, "scale": {100, 20}, "stats": {100, 20}, "key": {20000, 2000}, // ours
	}
	if diff := cmp.Diff(want, ratelimit.Defaults()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	changed := func(operation string, b ratelimit.Bounds) ratelimit.Table {
		table := ratelimit.Defaults()
		table[operation] = b
		return table
	}
	tests := map[string]struct {
		text string
		want ratelimit.Table
		err  string
	}{
		"nothing":          {text: `{}`, want: ratelimit.Defaults()},
		"both":             {text: `{"run":{"requests":5000,"concurrent":1000}}`, want: changed("run", ratelimit.Bounds{Requests: 5000, Concurrent: 1000})},
		"one keeps other":  {text: `{"run":{"requests":5000}}`, want: changed("run", ratelimit.Bounds{Requests: 5000, Concurrent: 200})},
		"zero is none":     {text: `{"run":{"requests":0}}`, want: changed("run", ratelimit.Bounds{Concurrent: 200})},
		"null field":       {text: `{"run":{"concurrent":null}}`, want: changed("run", ratelimit.Bounds{Requests: 1000})},
		"null operation":   {text: ` {"status":null} `, want: changed("status", ratelimit.Bounds{})},
		"no JSON":          {text: `run=5`, err: "must be a JSON object of operations"},
		"empty":            {text: ``, err: "must be a JSON object of operations"},
		"null":             {text: `null`, err: "must be a JSON object of operations"},
		"array":            {text: `[]`, err: "must be a JSON object of operations"},
		"two":              {text: `{}{}`, err: "must be one JSON object and nothing after it"},
		"rubbish after":    {text: `{} x`, err: "must be one JSON object and nothing after it"},
		"unknown":          {text: `{"walk":null}`, err: "walk is no operation: must be of key, cancel, explain, openai, purge-queue, requests, retry, run, runsync, scale, stats, status, stream"},
		"case":             {text: `{"Run":null}`, err: "Run is no operation: must be of key, cancel, explain, openai, purge-queue, requests, retry, run, runsync, scale, stats, status, stream"},
		"not an object":    {text: `{"run":5}`, err: "run must be an object or null"},
		"unknown field":    {text: `{"run":{"rate":5}}`, err: "run.rate is unknown: must be requests or concurrent"},
		"case of a field":  {text: `{"run":{"Requests":5}}`, err: "run.Requests is unknown: must be requests or concurrent"},
		"negative":         {text: `{"run":{"requests":-1}}`, err: "run.requests must be a whole number of 0 or more"},
		"fraction":         {text: `{"run":{"concurrent":1.5}}`, err: "run.concurrent must be a whole number of 0 or more"},
		"text":             {text: `{"run":{"concurrent":"1"}}`, err: "run.concurrent must be a whole number of 0 or more"},
		"beyond any int":   {text: `{"run":{"requests":1e30}}`, err: "run.requests must be a whole number of 0 or more"},
		"a broken object":  {text: `{"run":{"requests":1}`, err: "must be a JSON object of operations"},
		"the first of two": {text: `{"walk":null,"fly":null}`, err: "fly is no operation: must be of key, cancel, explain, openai, purge-queue, requests, retry, run, runsync, scale, stats, status, stream"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ratelimit.Parse([]byte(test.text))
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != test.err {
				t.Errorf("got error %q, want %q", text, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"run":{"requests":5000,"concurrent":1000},"status":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := ratelimit.Parse(text)
		if (err == nil) == (table == nil) {
			t.Fatalf("got %v and %v", table, err)
		}
		for operation, b := range table {
			if (!ratelimit.Known(operation) && operation != ratelimit.Key) || b.Requests < 0 || b.Concurrent < 0 {
				t.Errorf("%s: got %+v", operation, b)
			}
		}
	})
}

func TestRaisedAndShared(t *testing.T) {
	base := ratelimit.Bounds{Requests: 1000, Concurrent: 200}
	tests := map[string]struct{ got, want ratelimit.Bounds }{
		"no workers":               {base.Raised(0, 500), base},
		"no requests per worker":   {base.Raised(9, 0), base},
		"below both":               {base.Raised(2, 100), base},
		"above one":                {base.Raised(3, 100), ratelimit.Bounds{Requests: 1000, Concurrent: 300}},
		"above both":               {base.Raised(20, 100), ratelimit.Bounds{Requests: 2000, Concurrent: 2000}},
		"no bound stays none":      {ratelimit.Bounds{}.Raised(20, 100), ratelimit.Bounds{}},
		"more than an int":         {base.Raised(math.MaxInt, 2), ratelimit.Bounds{Requests: math.MaxInt, Concurrent: math.MaxInt}},
		"one server":               {base.Share(1), base},
		"no server":                {base.Share(0), base},
		"two servers":              {base.Share(2), ratelimit.Bounds{Requests: 500, Concurrent: 100}},
		"rounded up":               {base.Share(3), ratelimit.Bounds{Requests: 334, Concurrent: 67}},
		"never nothing":            {ratelimit.Bounds{Requests: 2, Concurrent: 1}.Share(7), ratelimit.Bounds{Requests: 1, Concurrent: 1}},
		"the most there can be":    {ratelimit.Bounds{Requests: math.MaxInt}.Share(1), ratelimit.Bounds{Requests: math.MaxInt}},
		"no bound shared is none":  {ratelimit.Bounds{}.Share(3), ratelimit.Bounds{}},
		"negative is as none":      {base.Raised(-1, -1), base},
		"a worker's own is enough": {ratelimit.Bounds{Requests: 1}.Raised(1, 7), ratelimit.Bounds{Requests: 7}},
	}
	for name, test := range tests {
		if test.got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, test.got, test.want)
		}
	}
}

func TestPeakIsTheMostOfOneSpan(t *testing.T) {
	var p ratelimit.Peak
	var got []int
	for _, servers := range []int{1, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1} {
		got = append(got, p.Look(servers))
	}
	if diff := cmp.Diff([]int{1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
