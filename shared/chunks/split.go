package chunks

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"
)

// longestCharacter is the most bytes that a character takes within a JSON
// string: a pair of \u escapes.
const longestCharacter = 12

// split cuts a chunk over limit bytes into several, if what makes it so large is
// a string: the chunk itself, or its output. What an object has besides its
// output stays with the first piece. data is JSON.
func split(data []byte, limit int) ([][]byte, error) {
	if len(data) <= limit {
		return [][]byte{data}, nil
	}
	if data[0] == '"' {
		return cut(data, limit, nil, nil, nil)
	}
	var element map[string]json.RawMessage
	if data[0] != '{' || json.Unmarshal(data, &element) != nil {
		return nil, ErrTooLarge
	}
	output := element["output"]
	if len(output) == 0 || output[0] != '"' {
		return nil, ErrTooLarge
	}
	delete(element, "output")
	rest, err := spelled(element)
	if err != nil {
		return nil, err
	}
	return cut(output, limit, []byte(`{"output":`), rest, []byte(`}`))
}

// spelled is an object from the inside, each field after a comma, the values as
// they were.
func spelled(element map[string]json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(element)) {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		b.WriteByte(',')
		b.Write(key)
		b.WriteByte(':')
		b.Write(element[name])
	}
	return b.Bytes(), nil
}

// cut makes chunks of limit bytes of the parts of a JSON string: each with head
// before it and tail behind, and the first with rest between it and tail.
func cut(text []byte, limit int, head, rest, tail []byte) ([][]byte, error) {
	inside := text[1 : len(text)-1]
	room := limit - len(head) - len(tail) - len(`""`)
	if room-len(rest) < longestCharacter {
		return nil, ErrTooLarge
	}
	var pieces [][]byte
	for len(inside) > 0 {
		end := wholeCharacters(inside, room-len(rest))
		piece := make([]byte, 0, len(head)+end+len(rest)+len(tail)+len(`""`))
		piece = append(append(append(piece, head...), '"'), inside[:end]...)
		piece = append(append(append(piece, '"'), rest...), tail...)
		pieces, inside, rest = append(pieces, piece), inside[end:], nil
	}
	return pieces, nil
}

// wholeCharacters is how many bytes, n at most, of the inside of a JSON string
// end with a whole character.
func wholeCharacters(inside []byte, n int) int {
	if len(inside) <= n {
		return len(inside)
	}
	end := 0
	for {
		size := characterSize(inside[end:])
		if end+size > n {
			return end
		}
		end += size
	}
}

// characterSize is how many bytes the character takes that the inside of a
// JSON string begins with, written out or escaped.
func characterSize(inside []byte) int {
	switch {
	case inside[0] != '\\':
		_, size := utf8.DecodeRune(inside)
		return size
	case inside[1] != 'u':
		return len(`\n`)
	case surrogate(inside, "89abAB") && surrogate(inside[len(`\uXXXX`):], "cdefCDEF"):
		return longestCharacter
	}
	return len(`\uXXXX`)
}

// surrogate reports whether text begins with a \u escape of a half of a pair,
// the one whose third digit's neighbour is among second.
func surrogate(text []byte, second string) bool {
	return len(text) >= len(`\uXXXX`) && text[0] == '\\' && text[1] == 'u' &&
		(text[2] == 'd' || text[2] == 'D') && bytes.IndexByte([]byte(second), text[3]) >= 0
}
