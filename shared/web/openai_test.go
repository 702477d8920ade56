package web

import (
	"encoding/json"
	"net/http"
	"testing"
)

func TestErrorsBeneathOpenAIHaveItsShape(t *testing.T) {
	for path, want := range map[string]bool{
		"/v2/ep/openai/v1/models": true,
		"/v2/ep/openai/":          true,
		"/v2/ep/openai":           false,
		"/v2/openai/run":          false,
		"/v2/ep/status/openai/x":  false,
		"/v2/ep/run":              false,
		"/v1/ep/openai/x":         false,
		"/v2/":                    false,
		"":                        false,
	} {
		if got := forOpenAI(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	got, err := json.Marshal(openAIOf(Error{TooManyRequests, "too many"}, "id"))
	const want = `{"error":{"message":"too many","type":"rate_limit_error","param":null,"code":"too_many_requests"},"requestId":"id"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestAnErrorForOpenAIHasATypeByItsStatus(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error", http.StatusNotFound: "invalid_request_error",
		http.StatusTooManyRequests: "rate_limit_error", http.StatusInternalServerError: "server_error", http.StatusGatewayTimeout: "server_error", 499: "invalid_request_error",
	} {
		if got := OpenAIType(status); got != want {
			t.Errorf("%d: got %s, want %s", status, got, want)
		}
	}
}
