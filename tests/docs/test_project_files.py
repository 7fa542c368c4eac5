"""The files that others read by rule: citation, CI script, commit hooks."""

import os
import re
import tomllib

import yaml

import ncscope
from tests.docs.pages import PAGES, ROOT

PAPERS = {"2406.03999", "2306.03440", "2106.02073", "2405.00985", "2202.08087"}
WRITTEN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "CITATION.cff"]


def test_citation_names_the_software_and_the_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert (citation["title"], citation["version"]) == ("ncscope", ncscope.__version__)
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    named = (citation["repository-code"], citation["url"])
    assert named == (urls["Repository"], urls["Documentation"])
    numbers = {
        identifier["value"].removeprefix("arXiv:")
        for paper in citation["references"]
        for identifier in paper["identifiers"]
    }
    assert numbers == PAPERS


def test_five_papers_are_cited():
    text = (ROOT / "docs/references.md").read_text()
    assert {number for number in PAPERS if number in text} == PAPERS


def test_version_is_in_the_changelog():
    assert f"## [{ncscope.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_continuous_integration_runs_what_the_readme_says():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert re.search(r"^make test$", script.read_text(), re.M)
    assert "make test" in (ROOT / "README.md").read_text()


def test_floors_are_those_of_the_import_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][0]
    layers = [re.split(" [:|] ", layer)[0].removeprefix("ncscope.") for layer in contract["layers"]]
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Layers")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.M) == layers


def test_the_readme_s_links_to_our_own_pages_lead_somewhere():
    """They are absolute, since the README is shown where the package is published too."""
    text = (ROOT / "README.md").read_text()
    assert not re.findall(r"\]\((?!https?:|#)([^)]+)", text)
    pages = re.findall(r"https://ncscope\.github\.io/ncscope/([\w/-]*)", text)
    files = re.findall(r"ncscope/ncscope/(?:blob/)?main/([\w./-]+)", text)
    assert len(pages) > 10
    docs = ROOT / "docs"
    for page in (page.rstrip("/") for page in pages):
        written = (docs / f"{page}.md", docs / f"{page}.ipynb", docs / page / "index.md")
        assert any(path.exists() for path in written), page
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_sections_of_the_site_have_at_most_seven_entries():
    def check(entries: list, section: str) -> None:
        assert len(entries) <= 7, section
        for entry in entries:
            for name, below in entry.items():
                if isinstance(below, list):
                    check(below, name)

    nav = (ROOT / "mkdocs.yml").read_text().partition("nav:")[2].partition("validation:")[0]
    check(yaml.safe_load(f"nav:{nav}")["nav"], "nav")


def test_relative_links_lead_somewhere():
    for path in WRITTEN:
        text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
        links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
        assert [link for link in links if not (path.parent / link).exists()] == [], path
