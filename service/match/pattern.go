package match

import (
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// pattern holds a regular expression that looks at the beginning of a text only.
type pattern struct {
	value bson.Value // the expression itself
	re    *regexp.Regexp
	bytes int // how much of a text it looks at
	cost  int // the steps of looking at it
	size  int // how many bytes of memory it takes, about
}

// The bounds of regular expressions.
const (
	maxPattern = 256 // bytes
	maxWidth   = 256 // characters of a text that it can describe
	maxProgram = 512 // instructions
)

// How many bytes the parts of a compiled expression take, about: Go makes one program of it, and
// another one to match in one pass. In the second, a fork has all characters that may follow.
const (
	patternCost     = 512
	instructionCost = 128
	runeCost        = 24
	followCost      = 12
)

// compilePattern compiles a regular expression that begins with ^ and describes a bounded number of
// characters, in the part of the language that means the same in PCRE and in RE2. It takes at most
// so many bytes of memory.
func compilePattern(text, options string, most int) (*pattern, string) {
	if len(text) > maxPattern {
		return nil, "the regular expression is too long"
	}
	flags := syntax.Perl
	for _, o := range options {
		switch o {
		case 'i':
			flags |= syntax.FoldCase
		case 's':
			flags |= syntax.DotNL
		default:
			return nil, "the regular expression has the option " + string(o) +
				", which is not supported here"
		}
	}
	if escapes(text, "sS") { // which differ in the vertical tab
		return nil, `\s and \S in regular expressions are not supported here`
	}
	tree, err := syntax.Parse(text, flags)
	if err != nil {
		return nil, "the regular expression is not supported here: " + err.Error()
	}
	tree = endless(tree)
	width := widthOf(tree)
	switch {
	case !anchored(tree):
		return nil, "the regular expression must begin with ^"
	case width > maxWidth:
		return nil, "the regular expression must limit how much it matches"
	case !endsWell(tree, true):
		return nil, "the regular expression must have $ only at its end"
	}
	size := sizeOf(tree)
	switch {
	case size.instructions > maxProgram:
		return nil, "the regular expression is too large"
	case size.bytes() > most:
		return nil, "the regular expressions are too large together"
	}
	re, err := regexp.Compile(tree.String())
	if err != nil {
		return nil, "the regular expression is not supported here: " + err.Error()
	}
	p := &pattern{value: bson.RegexValue(text, options), re: re, size: size.bytes()}
	p.bytes = (width + 2) * 4 // what it looks at, a line feed before the end, and what comes then
	p.cost = 1 + width*size.instructions/costly
	return p, ""
}

func (p *pattern) match(text string) bool {
	return p.re.MatchString(text[:min(len(text), p.bytes)])
}

// escapes reports whether one of the letters follows a backslash.
func escapes(text, letters string) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if i++; strings.IndexByte(letters, text[i]) >= 0 {
			return true
		}
	}
	return false
}

// endless returns an expression that matches the same texts, without what may follow any number of
// times at its end, and with what $ stands for there: the end, or a line feed before it.
func endless(re *syntax.Regexp) *syntax.Regexp {
	switch re.Op {
	case syntax.OpConcat:
		last := len(re.Sub) - 1
		re.Sub[last] = endless(re.Sub[last])
	case syntax.OpStar:
		return &syntax.Regexp{Op: syntax.OpEmptyMatch, Flags: re.Flags}
	case syntax.OpPlus:
		return re.Sub[0]
	case syntax.OpEndText:
		if re.Flags&syntax.WasDollar == 0 {
			return re
		}
		feed := &syntax.Regexp{Op: syntax.OpLiteral, Rune: []rune{'\n'}}
		return &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{
			{Op: syntax.OpQuest, Sub: []*syntax.Regexp{feed}}, {Op: syntax.OpEndText},
		}}
	default:
	}
	return re
}

// anchored reports whether an expression matches at the beginning of a text only.
func anchored(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText:
		return true
	case syntax.OpConcat, syntax.OpCapture:
		return anchored(re.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			if !anchored(sub) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// endsWell reports whether $ stands at most at the end of the whole, where endless has replaced it.
func endsWell(re *syntax.Regexp, last bool) bool {
	if re.Op == syntax.OpEndText {
		return last && re.Flags&syntax.WasDollar == 0
	}
	for i, sub := range re.Sub {
		inLast := last && i == len(re.Sub)-1 && re.Op == syntax.OpConcat
		if !endsWell(sub, inLast) {
			return false
		}
	}
	return true
}

// widthOf returns how many characters of a text an expression describes at most, or more than
// maxWidth.
func widthOf(re *syntax.Regexp) (n int) {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpStar, syntax.OpPlus:
		return maxWidth + 1
	case syntax.OpRepeat:
		if re.Max < 0 {
			return maxWidth + 1
		}
		return min(re.Max*widthOf(re.Sub[0]), maxWidth+1)
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n = max(n, widthOf(sub))
		}
		return n
	default:
		for _, sub := range re.Sub {
			n += widthOf(sub)
		}
		return min(n, maxWidth+1)
	}
}

// size says how large the program of an expression is at most.
type size struct {
	instructions int
	forks        int // those that go on at one of two places
	runes        int // those of all instructions
	set          int // those of the expression itself, in which a repeated part is there once
}

func (s size) bytes() int {
	return patternCost + s.instructions*instructionCost + s.runes*runeCost +
		s.forks*s.set*followCost
}

// sizeOf returns the size of an expression and its end. It compiles nothing: a few bytes of text
// can be a large program.
func sizeOf(re *syntax.Regexp) size {
	s := partOf(re)
	s.instructions += 2 // the end, and where nothing matches
	return s
}

func partOf(re *syntax.Regexp) (s size) {
	for _, sub := range re.Sub {
		of := partOf(sub)
		s.instructions += of.instructions
		s.forks += of.forks
		s.runes += of.runes
		s.set += of.set
	}
	forks := 0
	switch re.Op {
	case syntax.OpLiteral:
		s.instructions, s.runes = len(re.Rune), 2*len(re.Rune)
		if re.Flags&syntax.FoldCase != 0 {
			s.runes *= maxFolds
		}
		s.set = s.runes
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		s.instructions, s.runes = 1, max(len(re.Rune), 4)
		s.set = s.runes
	case syntax.OpConcat:
	case syntax.OpCapture:
		s.instructions += 2
	case syntax.OpAlternate:
		forks = len(re.Sub) - 1
	case syntax.OpQuest:
		forks = 1
	case syntax.OpRepeat:
		n := max(re.Max, 1)
		s.instructions, s.forks, s.runes = n*s.instructions, n*s.forks, n*s.runes
		forks = n - re.Min
	default: // what looks at no character
		s.instructions++
	}
	s.instructions += forks
	s.forks += forks
	return s
}

// maxFolds is how many characters are equal at most if case does not count.
const maxFolds = 4
