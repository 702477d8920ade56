package openai

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"flightline/shared/job"
)

func isJSONObject(text []byte) bool {
	var object map[string]any
	return json.Unmarshal(text, &object) == nil && object != nil
}

func TestAJobsErrorIsToldAsOpenAIsWouldBe(t *testing.T) {
	const bad = `{"message":"bad","type":"BadRequestError","param":null,"code":400}`
	for name, tc := range map[string]struct {
		text   string
		status int
		body   string
	}{
		"a dict of Python":          {`{'message': 'bad', 'type': 'BadRequestError', 'code': 400}`, 400, `{"error":` + bad + `}`},
		"one in another":            {`{'error': {'message': 'bad', 'type': 'BadRequestError', 'code': 400}}`, 400, `{"error":` + bad + `}`},
		"JSON":                      {`{"message":"bad","type":"BadRequestError","code":400}`, 400, `{"error":` + bad + `}`},
		"digits for a code":         {`{'message': 'no', 'code': '404'}`, 404, `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"404"}}`},
		"a type and no code":        {`{'message': 'no', 'type': 'NotFoundError'}`, 404, `{"error":{"message":"no","type":"NotFoundError","param":null,"code":"job_failed"}}`},
		"a code that is no status":  {`{'message': 'no', 'type': 'x', 'code': 7}`, 500, `{"error":{"message":"no","type":"x","param":null,"code":7}}`},
		"a code that is no number":  {`{'message': 'no', 'code': nan}`, 500, `{"error":{"message":"no","type":"server_error","param":null,"code":"job_failed"}}`},
		"a code that is a list":     {`{'message': 'no', 'code': [1]}`, 500, `{"error":{"message":"no","type":"server_error","param":null,"code":"job_failed"}}`},
		"what the engine answered":  {`vLLM returned HTTP 400: {"error":{"message":"bad","code":400}}`, 400, `{"error":{"message":"bad","code":400}}`},
		"what ours answered":        {`upstream returned HTTP 404: {"error":{"message":"x"}}`, 404, `{"error":{"message":"x"}}`},
		"the same in a dict":        {`{'message': 'vLLM returned HTTP 422: {"error": {"message": "it\'s bad"}}', 'type': 'x'}`, 422, `{"error": {"message": "it's bad"}}`},
		"an older engine's":         {`vLLM returned HTTP 404: {"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}`, 404, `{"error":` + bad + `}`},
		"another shape of it":       {`vLLM returned HTTP 422: {"detail":["x"]}`, 422, `{"detail":["x"]}`},
		"no JSON":                   {`vLLM returned HTTP 502: Bad Gateway`, 502, `{"error":{"message":"Bad Gateway","type":"server_error","param":null,"code":"job_failed"}}`},
		"an exception of the SDK's": {`{"error_type":"<class 'ValueError'>","error_message":"no such voice","error_traceback":"…"}`, 500, `{"error":{"message":"no such voice","type":"server_error","param":null,"code":"job_failed"}}`},
		"words":                     {`out of memory`, 500, `{"error":{"message":"out of memory","type":"server_error","param":null,"code":"job_failed"}}`},
		"a dict without a message":  {`{'a': 1}`, 500, `{"error":{"message":"{'a': 1}","type":"server_error","param":null,"code":"job_failed"}}`},
		"nothing":                   {``, 500, `{"error":{"message":"","type":"server_error","param":null,"code":"job_failed"}}`},
	} {
		if got := failureOfText(tc.text); got.status != tc.status || string(got.body) != tc.body {
			t.Errorf("%s: got %d %s, want %d %s", name, got.status, got.body, tc.status, tc.body)
		}
	}
}

func TestAnOutputThatIsTooLargeHasItsCode(t *testing.T) {
	got := failureOf(&job.Job{Status: job.Failed, Error: job.ErrTextOutputTooLarge + ": 21 MB"})
	if got.status != 502 || !strings.Contains(string(got.body), `"code":"`+CodeTooLarge+`"`) {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

func TestAJobsEndHasAStatus(t *testing.T) {
	for status, want := range map[job.Status]struct {
		status int
		code   string
	}{
		job.Failed:    {500, CodeFailed},
		job.TimedOut:  {504, CodeTimedOut},
		job.Cancelled: {499, CodeCancelled},
	} {
		got := failureOf(&job.Job{Status: status})
		if got == nil || got.status != want.status || !strings.Contains(string(got.body), `"code":"`+want.code+`"`) {
			t.Errorf("%s: got %v, want %v", status, got, want)
		}
	}
	if got := failureOf(&job.Job{Status: job.Completed}); got != nil {
		t.Errorf("COMPLETED: got %s, want no failure", got.body)
	}
}

func TestAnOutputIsUnwrapped(t *testing.T) {
	const chat = `{"object":"chat.completion","id":"1"}`
	for name, tc := range map[string]struct {
		output string
		status int
		kind   string
		body   string
	}{
		"one value in a list":       {`[` + chat + `]`, 200, "application/json", chat},
		"a value":                   {chat, 200, "application/json", chat},
		"strings that are JSON":     {`["{\"a\":", "1}"]`, 200, "application/json", `{"a":1}`},
		"strings that are text":     {`["Hel", "lo"]`, 200, "text/plain; charset=utf-8", `Hello`},
		"a string":                  {`"Hello"`, 200, "text/plain; charset=utf-8", `Hello`},
		"several values":            {`[{"a":1},{"b":2}]`, 200, "application/json", `[{"a":1},{"b":2}]`},
		"a number":                  {`1`, 200, "application/json", `1`},
		"an empty list":             {`[]`, 200, "application/json", `[]`},
		"an error":                  {`[{"error":{"message":"no","code":404}}]`, 404, "application/json", `{"error":{"message":"no","code":404}}`},
		"an error of older engines": {`{"object":"error","message":"no","type":"NotFoundError","param":null,"code":404}`, 404, "application/json", `{"error":{"message":"no","type":"NotFoundError","param":null,"code":404}}`},
		"an error in a string":      {`"{\"error\":{\"message\":\"no\",\"type\":\"overloaded_error\"}}"`, 503, "application/json", `{"error":{"message":"no","type":"overloaded_error"}}`},
		"no error":                  {`{"object":"response","error":null}`, 200, "application/json", `{"object":"response","error":null}`},
		"a response that failed":    {`{"object":"response","error":{"code":"server_error"}}`, 200, "application/json", `{"object":"response","error":{"code":"server_error"}}`},
		"an error that is a text":   {`{"error":"no"}`, 200, "application/json", `{"error":"no"}`},
		"an object that is a list":  {`{"object":["error"]}`, 200, "application/json", `{"object":["error"]}`},
	} {
		got := outputReply(json.RawMessage(tc.output))
		if got.status != tc.status || got.kind != tc.kind || string(got.body) != tc.body {
			t.Errorf("%s: got %d %s %s, want %d %s %s", name, got.status, got.kind, got.body, tc.status, tc.kind, tc.body)
		}
	}
}

func TestAnOutputIsEmptyHoweverItIsSpelled(t *testing.T) {
	for output, want := range map[string]bool{
		"": true, " ": true, "null": true, "[]": true, "[ ]": true, " [\n] ": true, "[[]]": false, "{}": false, `""`: false, "[null]": false,
	} {
		if got := emptyOutput(json.RawMessage(output)); got != want {
			t.Errorf("%q: got %v, want %v", output, got, want)
		}
	}
}

func TestAStreamIsTextVerbatimOrEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		outputs []string
		want    string
	}{
		"strings":               {[]string{`"data: {\"a\""`, `":1}\n\nda"`, `"ta: [DONE]\n\n"`}, "data: {\"a\":1}\n\ndata: [DONE]\n\n"},
		"objects":               {[]string{`{"a":1}`, `{"b":2}`}, "data: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n"},
		"lists of them":         {[]string{`[{"a":1},{"b":2}]`, `[]`, `null`}, "data: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n"},
		"lists of strings":      {[]string{`["a","b"]`, `""`}, "ab"},
		"an object on lines":    {[]string{"{\n\"a\":\n1}"}, "data: {\"a\":1}\n\ndata: [DONE]\n\n"},
		"text that is no event": {[]string{`"Hel"`, `"lo"`, `"\n\n"`, `"da"`}, "Hello\n\nda"},
		"an object in an event": {[]string{`"data: x"`, `{"a":1}`}, "data: x\n\ndata: {\"a\":1}\n\n"},
	} {
		for _, flush := range []bool{false, true} {
			var text eventText
			got := ""
			for _, output := range tc.outputs {
				text.add(json.RawMessage(output))
				if flush {
					got += text.String()
					text.discardWritten()
				}
			}
			text.addEnd()
			if got += text.String(); got != tc.want {
				t.Errorf("%s, flushed %v: got %q, want %q", name, flush, got, tc.want)
			}
		}
	}
}

func TestACommentIsWrittenOnlyBetweenEvents(t *testing.T) {
	var text eventText
	for _, step := range []struct {
		add  string
		want bool
	}{
		{"", true},
		{`da`, true}, // what is begun is kept back
		{`ta: {}\n`, true},
		{`\n`, true},
		{`data: x\r`, true},
		{`\n\r`, true},
		{`\n`, true},
		{strings.Repeat("x", keptBuffer), false},
		{`\n\n`, true},
		{`data: ` + strings.Repeat("x", maxHeldBack), false},
		{`x`, false},
		{`\n\n`, true},
	} {
		if step.add != "" {
			text.add(json.RawMessage(`"` + step.add + `"`))
		}
		text.discardWritten()
		text.addPing()
		if got := text.String() == ": ping\n\n"; got != step.want {
			t.Errorf("after %.20q: got a comment %v, want %v", step.add, got, step.want)
		}
		text.Reset()
	}
}

func TestWhatIsTooMuchOrNothingIsTheWorkersFault(t *testing.T) {
	for _, failed := range []*failure{tooLarge(), noOutput(), workerLost()} {
		if failed.status != http.StatusBadGateway || !isJSONObject(failed.body) {
			t.Errorf("got %d %s, want 502", failed.status, failed.body)
		}
	}
}

func TestAFailureTakesThePlaceOfHalfAnEventOnly(t *testing.T) {
	for begun, want := range map[string]string{
		`data: {\"a\"`:        "data: 0\n\n",
		`data: {\"a\":1}`:     "data: {\"a\":1}\n\ndata: 0\n\n",
		`data: {\"a\":1}\n`:   "data: {\"a\":1}\n\n\ndata: 0\n\n",
		`data: {\"a\":1}\n\n`: "data: {\"a\":1}\n\ndata: 0\n\n",
		`da`:                  "data: 0\n\n",
	} {
		var text eventText
		text.add(json.RawMessage(`"` + begun + `"`))
		text.addFailure([]byte("0"))
		if got := text.String(); got != want {
			t.Errorf("after %s: got %q, want %q", begun, got, want)
		}
	}
}
