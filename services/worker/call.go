package worker

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// call is a request to an OpenAI server.
type call struct {
	method, route string
	body          []byte
	// plain: the input had no openai_route; the output has worker-vllm's own form.
	plain bool
	// noModel: the body names no model.
	noModel bool
}

// callOf reads a job's input, in one of the forms of RunPod's worker-vllm
// (docs/design/runpod-clients.md#openai-route):
//
//	{"openai_route": "/v1/chat/completions", "openai_input": {…}}
//	{"messages": […] or "prompt": "…", "sampling_params": {…}, "stream": true, "model": "…"}
//
// A call without a body is a GET. Its errors are callErrors.
func callOf(input json.RawMessage) (call, error) {
	var in struct {
		Route    *string         `json:"openai_route"` //nolint:tagliatelle // RunPod's names
		Body     json.RawMessage `json:"openai_input"` //nolint:tagliatelle // as above
		Messages json.RawMessage `json:"messages"`
		Prompt   json.RawMessage `json:"prompt"`
		Sampling json.RawMessage `json:"sampling_params"` //nolint:tagliatelle // as above
		Model    string          `json:"model"`
		Stream   bool            `json:"stream"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return call{}, failure400("the input cannot be read: %v", err)
	}
	if in.Route != nil {
		return routedCall(*in.Route, in.Body)
	}
	body := map[string]json.RawMessage{}
	if present(in.Sampling) && json.Unmarshal(in.Sampling, &body) != nil {
		return call{}, failure400("sampling_params must be an object, got %.100s", in.Sampling)
	}
	c := call{method: http.MethodPost, plain: true, noModel: in.Model == ""}
	switch {
	case present(in.Messages):
		c.route, body["messages"] = "/v1/chat/completions", in.Messages
	case present(in.Prompt):
		c.route, body["prompt"] = "/v1/completions", in.Prompt
	default:
		return call{}, failure400("the input must have openai_route, messages or prompt")
	}
	body["model"], _ = json.Marshal(in.Model) // a string
	body["stream"] = json.RawMessage(strconv.FormatBool(in.Stream))
	if in.Stream {
		body["stream_options"] = json.RawMessage(`{"include_usage":true}`)
	}
	var err error
	c.body, err = json.Marshal(body)
	return c, err
}

// routedCall is a call of a route below /v1/. What else a server has, such as
// vLLM's /sleep and Ollama's /api/delete, is for its operator.
func routedCall(route string, body json.RawMessage) (call, error) {
	plain, err := url.PathUnescape(route)
	switch {
	case err != nil, strings.ContainsAny(plain, "?#\\"), strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return call{}, failure400("openai_route is no path: %.200q", route)
	case !strings.HasPrefix(plain, "/v1/"), slices.ContainsFunc(strings.Split(plain, "/"), isDots):
		return call{}, callError{"openai_route must be below /v1/", "not_found_error", http.StatusNotFound}
	}
	body = bytes.TrimSpace(body)
	switch fields := map[string]json.RawMessage(nil); {
	case !present(body):
		return call{method: http.MethodGet, route: route}, nil
	case json.Unmarshal(body, &fields) != nil:
		return call{}, failure400("openai_input must be an object, got %.100s", body)
	case len(fields) == 0:
		return call{method: http.MethodGet, route: route}, nil
	}
	return call{method: http.MethodPost, route: route, body: body}, nil
}

// isDots reports whether a segment of a path is . or .., which a server may take for a way
// out.
func isDots(segment string) bool { return segment == "." || segment == ".." }

func present(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }
