package openai

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPythonLiteralsAreRead(t *testing.T) {
	for text, want := range map[string]any{
		`{'message': 'no', 'type': 'BadRequestError', 'code': 400}`: map[string]any{"message": "no", "type": "BadRequestError", "code": int64(400)},
		`{'message': "it's", 'param': None, 'ok': True, 'not': False}`: map[string]any{
			"message": "it's", "param": nil, "ok": true, "not": false,
		},
		`{'a': {'b': [1, -2.5, 1e3]}, 'c': (1,), 'd': ()}`: map[string]any{
			"a": map[string]any{"b": []any{int64(1), -2.5, 1000.0}}, "c": []any{int64(1)}, "d": []any{},
		},
		`{}`:                             map[string]any{},
		`[]`:                             []any{},
		` { 1 : 'x' , 'y' : 2 } `:        map[string]any{"y": int64(2)},
		`'a\nb\t\r\\\'"'`:                "a\nb\t\r\\'\"",
		`'\xe9\u20ac\U0001f600é'`:        "é€😀é",
		`'\ud83d'`:                       "\uFFFD",
		`'{\'message\': "x"}'`:           `{'message': "x"}`,
		`99999999999999999999`:           1e20,
		`['a', ]`:                        []any{"a"},
		`{'error': {'message': 'deep'}}`: map[string]any{"error": map[string]any{"message": "deep"}},
	} {
		if got, err := parseRepr(text); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: got %#v, %v, want %#v", text, got, err, want)
		}
	}
	if got, err := parseRepr("inf"); err != nil || got != math.Inf(1) {
		t.Errorf("inf: got %v, %v", got, err)
	}
}

func TestWhatIsNoPythonLiteralIsRefused(t *testing.T) {
	for _, text := range []string{
		``, `{`, `{'a'}`, `{'a': }`, `{'a': 1`, `{'a': 1,`, `{,}`, `[1`, `[,]`, `(1`, `'a`, `'a\`, `'\q'`, `'\x1'`, `'\U00110000'`, `'\uzzzz'`,
		`hello`, `{'a': 1} x`, `<object at 0x7f>`, `{'a': <object at 0x7f>}`, strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
	} {
		if got, err := parseRepr(text); err == nil {
			t.Errorf("%.40s: got %#v, want an error", text, got)
		}
	}
}

// Whatever an error's text is, it becomes an error in OpenAI's shape.
func FuzzErrorTexts(f *testing.F) {
	for _, text := range []string{
		`{'message': "it's", 'code': 400}`, `{'a': (1, [None, True, -1.5e3, nan])}`, `'\x41\u20ac\U0001f600'`, `{"error":{"message":"x"}}`,
		`vLLM returned HTTP 404: {"error":{"message":"x"}}`, `vLLM returned HTTP 500: `, `{'message': 'vLLM returned HTTP 400: {"detail":[]}'}`,
		`{'message': 'x', 'code': inf}`, `{'message': 'x', 'code': [1]}`, "\xff", ``, `null`, `{`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		failed := failureOfText(text)
		if failed.status < 400 || failed.status > 599 || !isJSONObject(failed.body) {
			t.Errorf("%q: got %d %s", text, failed.status, failed.body)
		}
		if value, err := parseRepr(text); err == nil {
			_ = fmt.Sprint(value)
		}
	})
}
