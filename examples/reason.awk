# Prints the one line of a log of CMake, make, a compiler, a linker or apt that names why it failed. What the machine
# lacks comes before what the code lacks, and of each kind the first, as the others follow from it.

function squeeze(text) {
  gsub(/[ \t]+/, " ", text)
  sub(/^ /, "", text)
  sub(/ $/, "", text)
  return text
}

function found(rank, text) {
  if (!(rank in reasons)) reasons[rank] = squeeze(text)
}

# A paragraph of CMake's message; one that is indented further lists what the one before announces.
function end_paragraph() {
  if (paragraph == "") return
  paragraphs[++count] = paragraph
  deep[count] = indented
  paragraph = ""
}

function end_message(   i, text) {
  if (!in_message) return
  in_message = 0
  end_paragraph()
  i = 1
  while (i < count && paragraphs[i] !~ /^ *Could (not find a package config|NOT find)/) ++i
  if (paragraphs[i] !~ /^ *Could (not find a package config|NOT find)/) i = 1
  text = paragraphs[i]
  for (; i < count; ++i) {
    announced = text ~ /:$/ || deep[i + 1] && (text !~ /[.)]$/ || paragraphs[i + 1] ~ /^ *Reason given/)
    if (!announced && !(deep[i] && !deep[i + 1] && paragraphs[i + 1] ~ /^ *[a-z]/)) break
    text = text " " paragraphs[i + 1]
  }
  # A place in CMake's own modules says nothing.
  found("cmake", place == "" || place ~ /^\// ? text : text " (" place ")")
}

function begin_message(line) {
  end_message()
  in_message = 1
  count = 0
  place = ""
  if (line ~ /^CMake Error: /) {
    sub(/^CMake Error: /, "", line)
    paragraph = line
    indented = 0
    return
  }
  sub(/^CMake Error *(\([a-z]*\) )?(at|in) */, "", line)
  sub(/ \([^()]*\):$/, "", line)
  sub(/:$/, "", line)
  place = line
}

{
  gsub(/\033\[[0-9;]*[mK]/, "")
  sub(/\r$/, "")
}

/^ *[0-9]* +\| / { next }  # the compiler quotes the source

/^CMake Error/ { begin_message($0); next }
in_message && /^[^ ]/ && place == "" && !/^(-- |CMake |See also |Call Stack|Specify )/ && paragraph != "" {
  paragraph = paragraph " " $0
  next
}
in_message && /^[^ ]/ { end_message() }
in_message && /^ *$/ { end_paragraph() }
in_message && /[^ ]/ {
  if (paragraph == "") indented = ($0 ~ /^    /)
  paragraph = paragraph " " $0
  sub(/^ +/, "")  # what a program that CMake ran has said is looked at like any other line
}

/(error|Error|failed|tee|ar|cannot|can't|could not).*No space left on device['.)]*$/ && /^[^ ]/ { found("disk", $0) }

/^[^ ]+: fatal error: [A-Za-z]+ signal terminated program/ || /^[^ ]+: .* terminated with signal 9/ ||
/^[^ ]+: error: unable to execute command: Killed/ || /^[^ ]*make.*\*\*\* .* Killed$/ || /^Killed$/ ||
/^virtual memory exhausted/ || /^[^ ]+: out of memory allocating/ || /^[^ ].*std::bad_alloc/ || /^[^ ].*: Cannot allocate memory$/ {
  found("memory", $0 " (too little memory: CMAKE_BUILD_PARALLEL_LEVEL=1 before the command compiles one file at a time)")
}

/collect2: error: ld returned|linker command failed/ { found("other", $0); next }
/^[^ "][^"]*: ([a-z]+ )*error: / || /^[^ "]*: error: / || /: command not found$/ { found("compiler", $0) }
/^[^ ].*: (undefined reference to|undefined symbol|cannot find |multiple definition of|final link failed)/ { found("linker", $0) }

dpkg != "" { found("dpkg", dpkg " " $0); dpkg = "" }
/^dpkg: error processing/ { dpkg = $0 }
/^[EW]: Failed to fetch/ { fetch = fetch == "" ? substr($0, 4) : fetch }
/^E: / && !/Sub-process .* returned an error code/ {
  # A package cannot be located where its list could not be fetched.
  found("apt", /Unable to locate|no installation candidate/ && fetch != "" ? fetch : substr($0, 4))
}

/^[^ ]*make.*\*\*\* / { found($0 ~ /Error [0-9]+$/ ? "other" : "make", $0) }
/^[^ ].*[Ee]rror/ { found("other", $0) }

END {
  end_message()
  count = split("disk memory compiler linker cmake dpkg apt make other", ranks, " ")
  for (i = 1; i <= count; ++i)
    if (ranks[i] in reasons) {
      print reasons[ranks[i]]
      exit
    }
}
