package prometheus

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Scrape returns the text of a page of metrics, and the values of its series by name and labels.
func Scrape(ctx context.Context, url string) (string, map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", nil, err
	}
	text := string(b)
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		series, number, ok := cutLast(line)
		v, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil {
			return "", nil, fmt.Errorf("%s: no series and value: %q", url, line)
		}
		all[series] = v
	}
	return text, all, nil
}

// cutLast cuts a line at its last space.
func cutLast(line string) (series, number string, ok bool) {
	at := strings.LastIndexByte(line, ' ')
	if at < 0 {
		return "", "", false
	}
	return line[:at], line[at+1:], true
}
