# SPDX-License-Identifier: BSD-3-Clause
# Makes choices.hpp from tunables.def: an enumeration for each tunable of kind choice, its words in their order.
BEGIN {
	keyword["auto"] = "automatic"
	keyword["explicit"] = "explicitly"
	print "// The words of tunables. Made from base/config/tunables.def."
	print "#pragma once"
	print ""
	print "#include <initializer_list>"
	print ""
	print "namespace pt2p::choice {"
	print ""
}
/^PT2P_TUNABLE\(choice,/ {
	if (split($0, part, /, */) < 7) {
		print "choices.awk: the words of a choice have to be on the line of its name: " $0 | "cat >&2"
		failed = 1
		exit
	}
	count = split(part[7], words, /[|"]/)
	list = texts = ""
	for (i = 1; i <= count; ++i)
		if (words[i] ~ /^[a-z]+$/) {
			list = list (list == "" ? "" : ", ") (words[i] in keyword ? keyword[words[i]] : words[i])
			texts = texts (texts == "" ? "" : ", ") "\"" words[i] "\""
		}
	print "// " substr(part[3], 2, length(part[3]) - 2)
	printf "enum class %s { %s };\n", part[2], list
	printf "constexpr const char *word_of(%s choice) { return std::initializer_list<const char *>{%s}.begin()[static_cast<int>(choice)]; }\n\n", part[2], texts
}
END {
	if (failed)
		exit 1
	print "} // namespace pt2p::choice"
}
