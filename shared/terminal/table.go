package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	// gap is the space between two columns.
	gap = 2
	// timeWidth is that of a time with its zone. Wider columns become narrower first.
	timeWidth = 25
	// minWidth is the least that a column is made.
	minWidth = 8
)

// Width is how many columns the terminal w has; 0 if it is none.
func Width(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Table writes rows with aligned columns. On a terminal long cells are shortened,
// so that a row of several columns fits.
func Table(w io.Writer, rows [][]string) error {
	if width := Width(w); width > 0 {
		rows = shortened(rows, width)
	}
	return align(w, rows)
}

// WrappedTable is Table, but the last column is broken into lines and not shortened:
// it says what to do. All rows have the same number of columns.
func WrappedTable(w io.Writer, rows [][]string) error {
	if width := Width(w); width > 0 && len(rows) > 0 {
		rows = wrapped(rows, width)
	}
	trimmed := make([][]string, len(rows))
	for i, row := range rows {
		for trimmed[i] = row; len(trimmed[i]) > 0 && trimmed[i][len(trimmed[i])-1] == ""; {
			trimmed[i] = trimmed[i][:len(trimmed[i])-1]
		}
	}
	return align(w, trimmed)
}

func align(w io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}

// shortened makes rows fit that have as many columns as the first one. Pairs of a
// name and a value stay: a person asked for that value.
func shortened(rows [][]string, width int) [][]string {
	if len(rows) == 0 || len(rows[0]) <= 2 {
		return rows
	}
	widths := widthsOf(rows)
	Narrow(widths, width)
	short := make([][]string, len(rows))
	for i, row := range rows {
		short[i] = row
		if len(row) == len(widths) {
			short[i] = make([]string, len(row))
			for column, cell := range row {
				short[i][column] = Shorten(cell, widths[column])
			}
		}
	}
	return short
}

func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		if len(row) == len(widths) {
			for column, cell := range row {
				widths[column] = max(widths[column], utf8.RuneCountInString(cell))
			}
		}
	}
	return widths
}

// Narrow makes columns of these widths fit into width: the widest ones give first,
// and a time last.
func Narrow(widths []int, width int) {
	over := gap*(len(widths)-1) - width
	for _, w := range widths {
		over += w
	}
	for _, least := range []int{timeWidth, 0} {
		var columns []int
		for column, w := range widths {
			if w > least {
				columns = append(columns, column)
			}
		}
		for ; over > 0 && len(columns) > 0; over-- {
			widest := slices.MaxFunc(columns, func(a, b int) int { return widths[a] - widths[b] })
			if widths[widest] <= minWidth {
				break
			}
			widths[widest]--
		}
	}
}

// Shorten is text in at most so many characters. An id loses its middle, because its
// ends tell it from others; a sentence loses its end.
func Shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most || most < 1 {
		return text
	}
	end := 0
	if !strings.Contains(text, " ") {
		end = most / 2
	}
	return string(runes[:most-end-1]) + "…" + string(runes[len(runes)-end:])
}

func wrapped(rows [][]string, width int) [][]string {
	widths := widthsOf(rows)
	last := len(widths) - 1
	room := width - gap*last
	for _, w := range widths[:last] {
		room -= w
	}
	room = max(room, timeWidth)
	var all [][]string
	for _, row := range rows {
		for i, line := range wrap(row[last], room) {
			cells := make([]string, len(row))
			if i == 0 {
				copy(cells, row)
			}
			cells[last] = line
			all = append(all, cells)
		}
	}
	return all
}

// wrap breaks text between words into lines of at most so many characters. A longer
// word is a line of its own.
func wrap(text string, most int) []string {
	var lines []string
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= most:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
