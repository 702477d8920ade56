package web

import (
	"net/http"
	"strings"
)

// OpenAIError is an error as OpenAI's clients read it.
type OpenAIError struct {
	Message string `json:"message"`
	// Type is a kind of errors, as "invalid_request_error".
	Type string `json:"type"`
	// Param is the parameter that is wrong, nil if it is none.
	Param *string `json:"param"`
	// Code is a text or, of some engines, the HTTP status; nil means none.
	Code any `json:"code"`
}

// OpenAIBody is the JSON of an error on the OpenAI route.
type OpenAIBody struct {
	Error OpenAIError `json:"error"`
	// RequestID is "" in what does not come from this package.
	RequestID string `json:"requestId,omitempty"`
}

// OpenAIType is the type that goes with an HTTP status.
func OpenAIType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// openAIOf is a's answer for OpenAI's clients.
func openAIOf(a Error, requestID string) OpenAIBody {
	return OpenAIBody{
		Error:     OpenAIError{Message: a.Text, Type: OpenAIType(a.Code.Status()), Code: a.Code},
		RequestID: requestID,
	}
}

// forOpenAI reports whether the path is one beneath /v2/ENDPOINT/openai/, whose
// errors have the shape that OpenAI's clients read.
func forOpenAI(path string) bool {
	rest, ok := strings.CutPrefix(path, "/v2/")
	_, rest, _ = strings.Cut(rest, "/")
	return ok && strings.HasPrefix(rest, "openai/")
}
