package job_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/job"
)

// A submission that is refused names the field that is wrong.
func TestNewRequestRefuses(t *testing.T) {
	long := strings.Repeat("x", job.MaxWebhook)
	tests := map[string]struct{ body, field string }{
		"nothing":                    {``, ""},
		"white space":                {" \r\n\t ", ""},
		"no JSON":                    {`hello`, ""},
		"null":                       {`null`, ""},
		"true":                       {`true`, ""},
		"a number":                   {`7`, ""},
		"a string":                   {`"input"`, ""},
		"an array":                   {`[{"input":{}}]`, ""},
		"a byte order mark":          {"\xef\xbb\xbf" + `{"input":{}}`, ""},
		"form data":                  {`input=%7B%7D`, ""},
		"an open object":             {`{"input":{}`, ""},
		"an open string":             {`{"input":{"a":"b}}`, ""},
		"a second value":             {`{"input":{}}{}`, ""},
		"a bracket too many":         {`{"input":{}}}`, ""},
		"a comma at the end":         {`{"input":{},}`, ""},
		"single quotes":              {`{'input':{}}`, ""},
		"a key without quotes":       {`{input:{}}`, ""},
		"a comment":                  {`{"input":{}/* */}`, ""},
		"a raw line break in text":   {"{\"input\":{\"a\":\"b\nc\"}}", ""},
		"a NUL byte":                 {"{\"input\":{}}\x00", ""},
		"latin-1":                    {"{\"input\":{\"a\":\"Caf\xe9\"}}", ""},
		"half a character":           {"{\"input\":{\"a\":\"\xf0\x9f\"}}", ""},
		"NaN":                        {`{"input":{"a":NaN}}`, ""},
		"a number with leading zero": {`{"input":{"a":01}}`, ""},
		"too deep":                   {`{"input":` + strings.Repeat(`{"a":`, 10_001) + `1` + strings.Repeat(`}`, 10_001) + `}`, ""},

		"no input":                {`{}`, "input"},
		"only unknown keys":       {`{"prompt":"a cat"}`, "input"},
		"input null":              {`{"input":null}`, "input"},
		"input an array":          {`{"input":[]}`, "input"},
		"input an array of one":   {`{"input":[{}]}`, "input"},
		"input a string":          {`{"input":"{}"}`, "input"},
		"input empty text":        {`{"input":""}`, "input"},
		"input a number":          {`{"input":0}`, "input"},
		"input true":              {`{"input":true}`, "input"},
		"input in a wrong case":   {`{"Input":{}}`, "input"},
		"the last of two inputs":  {`{"input":{},"input":null}`, "input"},
		"input within something":  {`{"job":{"input":{}}}`, "input"},
		"input spelled otherwise": {`{"inputs":{}}`, "input"},

		"webhook a number":             {`{"input":{},"webhook":1}`, "webhook"},
		"webhook an object":            {`{"input":{},"webhook":{"url":"http://a"}}`, "webhook"},
		"webhook an array":             {`{"input":{},"webhook":["http://a"]}`, "webhook"},
		"webhook true":                 {`{"input":{},"webhook":true}`, "webhook"},
		"webhook without scheme":       {`{"input":{},"webhook":"example.com/hook"}`, "webhook"},
		"webhook with ftp":             {`{"input":{},"webhook":"ftp://example.com"}`, "webhook"},
		"webhook with file":            {`{"input":{},"webhook":"file:///etc/passwd"}`, "webhook"},
		"webhook with javascript":      {`{"input":{},"webhook":"javascript:alert(1)"}`, "webhook"},
		"webhook without slashes":      {`{"input":{},"webhook":"http:example.com"}`, "webhook"},
		"webhook without host":         {`{"input":{},"webhook":"http:///path"}`, "webhook"},
		"webhook with a port only":     {`{"input":{},"webhook":"http://:80/"}`, "webhook"},
		"webhook with port 0":          {`{"input":{},"webhook":"http://example.com:0/"}`, "webhook"},
		"webhook with port 65536":      {`{"input":{},"webhook":"http://example.com:65536/"}`, "webhook"},
		"webhook with a zone":          {`{"input":{},"webhook":"http://[fe80::1%25eth0]/"}`, "webhook"},
		"webhook a path":               {`{"input":{},"webhook":"/hook"}`, "webhook"},
		"webhook of white space":       {`{"input":{},"webhook":" "}`, "webhook"},
		"webhook with space before":    {`{"input":{},"webhook":" http://example.com"}`, "webhook"},
		"webhook with a broken escape": {`{"input":{},"webhook":"http://example.com/%zz"}`, "webhook"},
		"webhook with a line break":    {`{"input":{},"webhook":"http://example.com/\nHost: b"}`, "webhook"},
		"webhook with a bad port":      {`{"input":{},"webhook":"http://example.com:http/"}`, "webhook"},
		"webhook too long":             {`{"input":{},"webhook":"http://e.com/` + long + `"}`, "webhook"},

		"policy a string":         {`{"input":{},"policy":"fast"}`, "policy"},
		"policy an array":         {`{"input":{},"policy":[]}`, "policy"},
		"policy a number":         {`{"input":{},"policy":3}`, "policy"},
		"policy false":            {`{"input":{},"policy":false}`, "policy"},
		"lowPriority a string":    {`{"input":{},"policy":{"lowPriority":"true"}}`, "policy.lowPriority"},
		"lowPriority a number":    {`{"input":{},"policy":{"lowPriority":1}}`, "policy.lowPriority"},
		"lowPriority an object":   {`{"input":{},"policy":{"lowPriority":{}}}`, "policy.lowPriority"},
		"executionTimeout text":   {`{"input":{},"policy":{"executionTimeout":"60000"}}`, "policy.executionTimeout"},
		"executionTimeout 5s":     {`{"input":{},"policy":{"executionTimeout":"5s"}}`, "policy.executionTimeout"},
		"executionTimeout true":   {`{"input":{},"policy":{"executionTimeout":true}}`, "policy.executionTimeout"},
		"executionTimeout half":   {`{"input":{},"policy":{"executionTimeout":6000.5}}`, "policy.executionTimeout"},
		"executionTimeout 0":      {`{"input":{},"policy":{"executionTimeout":0}}`, "policy.executionTimeout"},
		"executionTimeout -1":     {`{"input":{},"policy":{"executionTimeout":-1}}`, "policy.executionTimeout"},
		"executionTimeout huge":   {`{"input":{},"policy":{"executionTimeout":1e300}}`, "policy.executionTimeout"},
		"executionTimeout no f64": {`{"input":{},"policy":{"executionTimeout":1e999}}`, "policy.executionTimeout"},
		"ttl text":                {`{"input":{},"policy":{"ttl":"1h"}}`, "policy.ttl"},
		"ttl an object":           {`{"input":{},"policy":{"ttl":{}}}`, "policy.ttl"},
		"ttl half":                {`{"input":{},"policy":{"ttl":10000.1}}`, "policy.ttl"},
		"ttl 0":                   {`{"input":{},"policy":{"ttl":0}}`, "policy.ttl"},
		"ttl negative":            {`{"input":{},"policy":{"ttl":-86400000}}`, "policy.ttl"},
		"ttl beyond int64":        {`{"input":{},"policy":{"ttl":9223372036854775808}}`, "policy.ttl"},

		"s3Config a string":           {`{"input":{},"s3Config":"bucket"}`, "s3Config"},
		"s3Config an array":           {`{"input":{},"s3Config":[]}`, "s3Config"},
		"s3Config a number":           {`{"input":{},"s3Config":1}`, "s3Config"},
		"s3Config accessId a number":  {`{"input":{},"s3Config":{"accessId":1}}`, "s3Config.accessId"},
		"s3Config accessSecret array": {`{"input":{},"s3Config":{"accessSecret":["a"]}}`, "s3Config.accessSecret"},
		"s3Config bucketName true":    {`{"input":{},"s3Config":{"bucketName":true}}`, "s3Config.bucketName"},
		"s3Config endpointUrl object": {`{"input":{},"s3Config":{"endpointUrl":{}}}`, "s3Config.endpointUrl"},
	}
	if len(tests) < 60 {
		t.Errorf("got %d bad inputs, want 60 or more", len(tests))
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := job.NewRequest([]byte(tt.body))
			var wrong *job.FieldError
			if !errors.As(err, &wrong) || !errors.Is(err, job.ErrInvalid) {
				t.Fatalf("got %v, want a *FieldError that is ErrInvalid", err)
			}
			if wrong.Field != tt.field {
				t.Errorf("got field %q (%v), want %q", wrong.Field, err, tt.field)
			}
			if text := err.Error(); strings.Contains(text, "json:") || strings.Contains(text, "Go ") {
				t.Errorf("got %q, want no words of Go's", text)
			}
		})
	}
}

// An error text never quotes a secret.
func TestNewRequestNamesTheByteThatIsNoUTF8(t *testing.T) {
	_, err := job.NewRequest([]byte("{\"input\":{\"ä\":\"\xe9\"}}"))
	if want := "the body is not valid UTF-8 (at byte 17)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCompactJSONIsUTF8(t *testing.T) {
	got, err := job.CompactJSON([]byte("[ \"Caf\xe9\", \"ä\" ]"))
	if want := `["Caf` + "\uFFFD" + `","ä"]`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestNewRequestDoesNotRepeatSecrets(t *testing.T) {
	const secret = "hunter2"
	for _, body := range []string{
		`{"input":{},"s3Config":{"accessSecret":["` + secret + `"]}}`,
		`{"input":{},"s3Config":"` + secret + `"}`,
		`{"input":{},"s3Config":{"accessSecret":"` + secret + `"}`,
		`{"input":{},"webhook":"ftp://u:` + secret + `@example.com"}`,
	} {
		if _, err := job.NewRequest([]byte(body)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v, want an error without the secret", body, err)
		}
	}
}

func TestNewRequestAccepts(t *testing.T) {
	const input = `{"input":{},`
	policy := func(p job.Policy) job.Request { return job.Request{Policy: p} }
	tests := map[string]struct {
		body string
		want job.Request // Input aside
	}{
		"input alone":             {`{"input":{}}`, job.Request{}},
		"white space all around":  {" \r\n{ \"input\" : {} }\t\n", job.Request{}},
		"unknown keys":            {input + `"webhookV2":"x","id":7,"priority":[],"Policy":"fast"}`, job.Request{}},
		"unknown keys of policy":  {input + `"policy":{"gpu":"A100","TTL":"x"}}`, job.Request{}},
		"everything null":         {input + `"webhook":null,"policy":null,"s3Config":null}`, job.Request{}},
		"policy of nulls":         {input + `"policy":{"ttl":null,"executionTimeout":null,"lowPriority":null}}`, job.Request{}},
		"webhook empty":           {input + `"webhook":""}`, job.Request{}},
		"webhook http":            {input + `"webhook":"http://127.0.0.1:9/x?a=b"}`, job.Request{Webhook: "http://127.0.0.1:9/x?a=b"}},
		"webhook https":           {input + `"webhook":"https://u:p@[::1]/"}`, job.Request{Webhook: "https://u:p@[::1]/"}},
		"webhook escaped in JSON": {input + `"webhook":"http:\/\/example.com\u002f"}`, job.Request{Webhook: "http://example.com/"}},
		"lowPriority":             {input + `"policy":{"lowPriority":true}}`, policy(job.Policy{LowPriority: true})},
		"not lowPriority":         {input + `"policy":{"lowPriority":false}}`, job.Request{}},
		"ttl":                     {input + `"policy":{"ttl":3600000}}`, policy(job.Policy{TTL: time.Hour})},
		"ttl as 1e5":              {input + `"policy":{"ttl":1e5}}`, policy(job.Policy{TTL: 100 * time.Second})},
		"ttl as 10000.0":          {input + `"policy":{"ttl":10000.0}}`, policy(job.Policy{TTL: 10 * time.Second})},
		"the last of two ttls":    {input + `"policy":{"ttl":0,"ttl":60000}}`, policy(job.Policy{TTL: time.Minute})},
		"executionTimeout":        {input + `"policy":{"executionTimeout":5000}}`, policy(job.Policy{ExecutionTimeout: 5 * time.Second})},
		"s3Config empty":          {input + `"s3Config":{}}`, job.Request{S3Config: []byte(`{}`)}},
		"s3Config with more":      {input + `"s3Config":{"accessId":"a","objectPath":1}}`, job.Request{S3Config: []byte(`{"accessId":"a","objectPath":1}`)}},
		"s3Config of nulls":       {input + `"s3Config":{"accessId":null}}`, job.Request{S3Config: []byte(`{"accessId":null}`)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := job.NewRequest([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Input = []byte(`{}`)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewRequestKeepsTheInputVerbatim(t *testing.T) {
	for _, input := range []string{
		`{ "b": 1.0,  "a": 1e400, "a": [null, {}] }`, `{"é":"\u00e9 \ud83d\ude80 <&>"}`, `{"n":12345678901234567890123}`, "{\n}",
	} {
		got, err := job.NewRequest(fmt.Appendf(nil, `{"input":%s}`, input))
		if err != nil || string(got.Input) != input {
			t.Errorf("got %s, %v, want %s", got.Input, err, input)
		}
	}
}

// Fiber reuses the body's memory while a job still waits to be written.
func TestNewRequestKeepsNoReferenceToTheBody(t *testing.T) {
	body := []byte(`{"input":{"a":"b"},"webhook":"http://example.com/x","s3Config":{"accessId":"c"}}`)
	got, err := job.NewRequest(body)
	if err != nil {
		t.Fatal(err)
	}
	for i := range body {
		body[i] = 'X'
	}
	want := job.Request{Input: []byte(`{"a":"b"}`), Webhook: "http://example.com/x", S3Config: []byte(`{"accessId":"c"}`)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
