package main

import (
	"regexp"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// The comments of the proto files are for both protocols. This file makes of them what only REST
// needs: sentences that begin with "On gRPC" are left out, and "On REST" is dropped.

// comment returns the text before a declaration in the proto file, unwrapped.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	var paragraphs []string
	for p := range strings.SplitSeq(text, "\n\n") {
		if p = strings.Join(strings.Fields(p), " "); p != "" {
			paragraphs = append(paragraphs, p)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// text returns the comment of a declaration in REST's words.
func (s *schemas) text(d protoreflect.Descriptor) string {
	return s.wording(comment(d))
}

// summary returns the first sentence of a method's text, and the rest.
func (s *schemas) summary(m protoreflect.MethodDescriptor) (summary, rest string) {
	text := s.text(m)
	first := sentences(strings.SplitN(text, "\n\n", 2)[0])[0]
	return first, strings.TrimSpace(strings.TrimPrefix(text, first))
}

// wording returns a text in REST's words.
func (s *schemas) wording(text string) string {
	var paragraphs []string
	for p := range strings.SplitSeq(text, "\n\n") {
		var kept []string
		for _, sentence := range sentences(p) {
			if strings.HasPrefix(sentence, "On gRPC") ||
				strings.HasPrefix(sentence, "Numbers are those of") ||
				strings.HasPrefix(sentence, "Numbers 1 to 21") {
				continue
			}
			for _, w := range onREST {
				if after, ok := strings.CutPrefix(sentence, w); ok {
					sentence = capital(after)
				}
			}
			kept = append(kept, s.words(sentence))
		}
		if len(kept) > 0 {
			paragraphs = append(paragraphs, strings.Join(kept, " "))
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

var onREST = []string{"On REST, ", "On REST "}

// sentenceEnd is where a sentence ends and another one begins.
var sentenceEnd = regexp.MustCompile(`[.:]\)? [A-Z]`)

// sentences cuts a paragraph into its sentences.
func sentences(paragraph string) []string {
	var all []string
	for {
		at := sentenceEnd.FindStringIndex(paragraph)
		if at == nil || paragraph[at[0]] == ':' {
			return append(all, paragraph)
		}
		all = append(all, paragraph[:at[1]-2])
		paragraph = paragraph[at[1]-1:]
	}
}

// statusWords are the statuses that texts name, as HTTP has them.
var statusWords = strings.NewReplacer(
	"INVALID_ARGUMENT", "400", "NOT_FOUND", "404", "ALREADY_EXISTS", "409", "ABORTED", "409",
	"UNAVAILABLE", "503", "this message", "this request", "Each message", "Each line",
	"The first message", "The first line", "Later messages", "Later lines",
)

var (
	inParentheses = regexp.MustCompile(`(?:OK|[A-Z_]{4,}) \(REST: (\d+)\)`)
	nullOnREST    = regexp.MustCompile(`unset \(on REST: null\)`)
	methodName    = regexp.MustCompile(`\b([A-Z]\w+Service\.[A-Z]\w+)\b`)
	protoName     = regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)+\b`)
)

// words replaces what has another name on REST.
func (s *schemas) words(sentence string) string {
	sentence = inParentheses.ReplaceAllString(sentence, "$1")
	sentence = nullOnREST.ReplaceAllString(sentence, "null")
	if !strings.Contains(sentence, "such as `ALREADY_EXISTS`") {
		sentence = statusWords.Replace(sentence)
	}
	sentence = methodName.ReplaceAllStringFunc(sentence, func(name string) string {
		if id, ok := s.ids[name]; ok {
			return id
		}
		return name
	})
	return protoName.ReplaceAllStringFunc(sentence, camel)
}

// camel returns the JSON name of a field.
func camel(name string) string {
	parts := strings.Split(name, "_")
	for i := 1; i < len(parts); i++ {
		parts[i] = capital(parts[i])
	}
	return strings.Join(parts, "")
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
