#include "iha/report/style.h"

namespace iha::report {

// Colours are triples, so that one variable serves solid and shaded. The families start from Okabe and Ito's
// palette for colour-blind readers, moved until each has a contrast of 3 to its paper and any two differ by
// 15 (CIE 1976) also where red, green or blue cones are missing (tests/python/test_report.py computes both);
// text is never in them. Lines differ by their dashes as well. No '<' or '&' here: the page is well-formed
// XML, too.
std::string_view style_sheet() {
  return R"css(
:root { color-scheme: light dark;
  --paper: 255 255 255; --card: 247 248 249; --ink: 28 31 36; --soft: 92 99 110; --rule: 222 225 230;
  --causal: 21 161 129; --sliding: 19 86 230; --global: 208 110 20; --strided: 193 101 187; --every: 215 0 74; --chunked: 0 84 98; --learned: 92 52 4; --dynamic: 8 0 16;
  --link: 0 104 168; --c0: 0 104 168; --c1: 196 78 0; --c2: 0 122 89; --c3: 160 70 140; --c4: 120 96 0; --c5: 28 31 36; --c6: 60 140 200; --c7: 186 46 40;
  --plus: 240 140 90; --minus: 110 170 235; }
@media (prefers-color-scheme: dark) { :root {
  --paper: 20 22 26; --card: 29 32 38; --ink: 229 231 235; --soft: 160 167 178; --rule: 55 60 69;
  --causal: 56 232 155; --sliding: 130 192 255; --global: 244 178 72; --strided: 243 100 193; --every: 222 78 92; --chunked: 14 118 133; --learned: 160 111 9; --dynamic: 236 240 250;
  --link: 94 176 240; --c0: 94 176 240; --c1: 250 150 80; --c2: 51 191 148; --c3: 224 140 204; --c4: 214 190 60; --c5: 229 231 235; --c6: 140 200 255; --c7: 246 122 112;
  --plus: 165 66 18; --minus: 30 100 178; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: rgb(var(--paper)); color: rgb(var(--ink));
  font: 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main, .masthead { max-width: 62rem; margin: 0 auto; padding: 0 1.25rem; }
.masthead { padding-top: clamp(1.5rem, 6vw, 4rem); }
h1, h2 { font-family: Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; line-height: 1.15; text-wrap: balance; }
h1 { font-size: clamp(1.9rem, 5.5vw, 3rem); font-weight: 700; letter-spacing: -.015em; margin: 0 0 1rem; }
h2 { font-size: clamp(1.45rem, 3.5vw, 1.9rem); margin: 3.5rem 0 1rem; padding-top: 1.25rem; border-top: 1px solid rgb(var(--rule)); }
main > section:first-child > h2 { margin-top: 1.5rem; border-top: 0; }
h3 { font-size: 1.1rem; line-height: 1.3; margin: 0 0 .6rem; }
h4 { font-size: 1rem; line-height: 1.3; margin: 0; }
p, main > section > ul { max-width: 42rem; }
.lead { font-size: clamp(1.1rem, 2.6vw, 1.3rem); line-height: 1.5; color: rgb(var(--ink)); margin: 0 0 1.75rem; }
code, pre { font-family: ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace; }
code { font-size: .88em; overflow-wrap: anywhere; }
.key-figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 11.5rem), 1fr)); gap: .75rem; margin: 0 0 1.75rem; padding: 0; list-style: none; }
.key-figures li { background: rgb(var(--card)); border: 1px solid rgb(var(--rule)); border-radius: .6rem; padding: .9rem 1rem; line-height: 1.35; }
.key-figures b { display: block; font-size: 1.75rem; line-height: 1.2; font-variant-numeric: tabular-nums; letter-spacing: -.01em; }
.key-figures span { display: block; }
.key-figures .note, .note, figcaption, .y-label { color: rgb(var(--soft)); font-size: .875rem; line-height: 1.45; }
nav ol { display: flex; flex-wrap: wrap; gap: .25rem 1.4rem; margin: 0; padding: .7rem 0; list-style: none; border-block: 1px solid rgb(var(--rule)); font-size: .95rem; }
a { color: rgb(var(--link)); text-underline-offset: .2em; text-decoration-thickness: 1px; }
a:focus-visible, .scroll:focus-visible { outline: 2px solid rgb(var(--link)); outline-offset: 2px; }
figure { margin: 1.75rem 0; }
figcaption { margin-top: .7rem; max-width: 42rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .93rem; font-variant-numeric: tabular-nums; line-height: 1.35; }
table.data { width: 100%; border-collapse: separate; border-spacing: 0; }
.data th, .data td { padding: .45rem .7rem; text-align: right; vertical-align: baseline; border-bottom: 1px solid rgb(var(--rule)); white-space: nowrap; }
.data .left { text-align: left; white-space: normal; min-width: 9rem; }
.data thead th { border-bottom: 2px solid rgb(var(--soft)); font-weight: 600; }
.data th small { display: block; font-weight: 400; color: rgb(var(--soft)); }
.data tbody th { font-weight: 400; }
.data tr > :first-child { position: sticky; left: 0; background: rgb(var(--paper)); }
.data tr > :first-child { padding-left: 0; }
.data .emphasis > :nth-child(n) { font-weight: 650; background: rgb(var(--card)); }
pre { margin: 0; padding: .9rem 1rem; background: rgb(var(--card)); border: 1px solid rgb(var(--rule)); border-radius: .5rem; font-size: .85rem; line-height: 1.5; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; }
.chart { display: block; width: 100%; height: auto; }
.chart.narrow { display: none; }
@media (max-width: 36rem) { .chart.wide { display: none; } .chart.narrow { display: block; } }
.chart text { font: 13px system-ui, sans-serif; fill: rgb(var(--soft)); font-variant-numeric: tabular-nums; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.y-label { margin: 0 0 .2rem; }
.grid { stroke: rgb(var(--rule)); fill: none; } .axis { stroke: rgb(var(--soft)); fill: none; }
.line { fill: none; stroke: rgb(var(--line)); stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.band { fill: rgb(var(--line) / .16); }
.mark { fill: rgb(var(--line)); fill-opacity: 0; } .mark:hover { fill-opacity: .9; }
.c0 { --line: var(--c0); } .c1 { --line: var(--c1); } .c2 { --line: var(--c2); } .c3 { --line: var(--c3); }
.c4 { --line: var(--c4); } .c5 { --line: var(--c5); } .c6 { --line: var(--c6); } .c7 { --line: var(--c7); }
.d1 { stroke-dasharray: 8 5; } .d2 { stroke-dasharray: 2 5; } .d3 { stroke-dasharray: 11 4 2 4; }
.d5 { stroke-dasharray: 8 5; } .d6 { stroke-dasharray: 2 5; } .d7 { stroke-dasharray: 11 4 2 4; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.3rem; margin: 0 0 .5rem; padding: 0; list-style: none; font-size: .93rem; line-height: 1.4; }
.legend svg { width: 30px; height: 8px; margin-right: .45rem; vertical-align: middle; }
.legend b { font-variant-numeric: tabular-nums; }
.dots { display: grid; gap: .1rem 1rem; margin: 0; padding: 0; list-style: none; max-width: 52rem; font-size: .95rem; line-height: 1.3; }
.dots li { display: grid; grid-template-columns: 15rem 1fr 8.2rem; gap: 0 1rem; align-items: center; padding: .3rem 0; }
.dots .value { font-variant-numeric: tabular-nums; white-space: nowrap; text-align: right; }
.dots li .note { grid-column: 1 / -1; }
.dots .track { position: relative; height: 1.3rem; background: linear-gradient(rgb(var(--rule)), rgb(var(--rule))) 0 50% / 100% 1px no-repeat; }
.dots i { position: absolute; font-style: normal; }
.dots .bar { top: calc(50% - 3px); height: 6px; border-radius: 3px; background: rgb(var(--c0) / .4); }
.dots .point { top: calc(50% - 5.5px); width: 11px; height: 11px; margin-left: -5.5px; border-radius: 50%; background: rgb(var(--c0)); }
.dots .emphasis { font-weight: 650; } .dots .emphasis .point { background: rgb(var(--c1)); border-radius: 2px; transform: rotate(45deg); } .dots .emphasis .bar { background: rgb(var(--c1) / .4); }
.dots .reference { top: -.3rem; bottom: -.3rem; border-left: 2px dotted rgb(var(--soft)); }
.reference-key { display: inline-block; height: 1em; margin-right: .5rem; border-left: 2px dotted rgb(var(--soft)); vertical-align: -.15em; }
.dots .scale { padding: 0; } .dots .scale .track { grid-column: 2; background: none; }
.dots .tick { transform: translateX(-50%); color: rgb(var(--soft)); font-size: .8rem; font-variant-numeric: tabular-nums; }
@media (max-width: 44rem) { .dots li { grid-template-columns: 1fr auto; } .dots .track { grid-row: 2; grid-column: 1 / -1; } .dots .reference { top: 0; bottom: 0; } .dots .scale .track { grid-column: 1 / -1; } }
.heat { border-collapse: separate; border-spacing: 2px; font-size: .78rem; }
.heat th { white-space: nowrap; font-weight: 500; color: rgb(var(--soft)); padding: .1rem .35rem; } .heat th[scope=row] { text-align: right; white-space: nowrap; }
.heat .n { text-align: center; white-space: nowrap; }
.heat tbody td { min-width: 2.9rem; padding: .38rem .2rem; text-align: center; border-radius: 3px; background: rgb(var(--shade) / var(--a)); box-shadow: inset 0 0 0 1px rgb(var(--rule)); }
.heat .rule { border-left: 3px solid rgb(var(--soft)); }
.plus { --shade: var(--plus); } .minus { --shade: var(--minus); }
.scale-key { display: flex; align-items: center; gap: .6rem; margin: .5rem 0 0; font-size: .8rem; color: rgb(var(--soft)); font-variant-numeric: tabular-nums; }
.scale-key i { width: 9rem; height: .7rem; border-radius: 2px; box-shadow: inset 0 0 0 1px rgb(var(--rule)); }
.sequential { background: linear-gradient(90deg, transparent, rgb(var(--plus))); }
.diverging { background: linear-gradient(90deg, rgb(var(--minus)), transparent 50%, rgb(var(--plus))); }
.causal { --family: var(--causal); } .sliding { --family: var(--sliding); } .global { --family: var(--global); }
.strided { --family: var(--strided); } .every { --family: var(--every); } .chunked { --family: var(--chunked); }
.learned { --family: var(--learned); } .dynamic { --family: var(--dynamic); }
footer { width: calc(100% - 2.5rem); max-width: 59.5rem; margin: 4rem auto 0; padding: 1.25rem 0 2.5rem; border-top: 1px solid rgb(var(--rule)); color: rgb(var(--soft)); font-size: .875rem; white-space: pre-line; }
@media print { figure { break-inside: avoid; } nav { display: none; } }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
)css";
}

}  // namespace iha::report
